-- The usual scope of a key, which is its operation, is stored as nothing: the operation's name stands beside it. That is
-- some 25 bytes in each version of a record. What older code wrote out stays as it is, and older code only shows it.
-- oldest-code: 0001_record

-- name: view_goes
DROP VIEW nebis_record_view;

-- name: record_view
-- As before, and with every scope in full.
CREATE VIEW nebis_record_view AS
SELECT
    lower(
        substr(hex(record.record_id), 1, 8) || '-' || substr(hex(record.record_id), 9, 4) || '-'
        || substr(hex(record.record_id), 13, 4) || '-' || substr(hex(record.record_id), 17, 4) || '-'
        || substr(hex(record.record_id), 21)
    ) AS record_id,
    record.tenant,
    CASE record.scope WHEN '' THEN 'operation/' || record.operation ELSE record.scope END AS scope,
    record.operation,
    record.key,
    CASE record.state
        WHEN 'P' THEN 'in progress'
        WHEN 'A' THEN 'available'
        WHEN 'D' THEN 'in doubt'
        WHEN 'C' THEN 'completed'
        WHEN 'E' THEN 'expired'
    END AS state,
    CASE record.outcome_kind
        WHEN 'S' THEN 'succeeded'
        WHEN 'R' THEN 'rejected'
        WHEN 'U' THEN 'unknown'
        WHEN 'N' THEN 'unstorable'
    END AS outcome_kind,
    CASE record.mode WHEN 'L' THEN 'local' WHEN 'D' THEN 'declared' WHEN 'O' THEN 'opaque' END AS effects,
    record.is_dirty,
    record.open_effect,
    record.doubt_reason,
    record.resource_type,
    record.resource_id,
    record.attempts,
    record.recoveries,
    record.fence,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.lease_until / 1000000.0, 'unixepoch') AS lease_until,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.created_at / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.completed_at / 1000000.0, 'unixepoch') AS completed_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.doubt_since / 1000000.0, 'unixepoch') AS doubt_since,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.expires_at / 1000000.0, 'unixepoch') AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.forget_at / 1000000.0, 'unixepoch') AS forget_at,
    length(record.outcome) AS outcome_bytes,
    lower(hex(record.identity)) AS identity
FROM nebis_record AS record;
