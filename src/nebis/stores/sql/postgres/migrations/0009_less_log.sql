-- Less log for each key. The usual scope of a key, which is its operation, is stored as nothing: the operation's name
-- stands beside it. That is some 25 bytes in each version of a record. What older code wrote out stays as it is, and
-- older code only shows it.
-- oldest-code: 0001_record

-- name: room_for_outcomes
-- So that some of the completed versions find room beside the claimed ones, and need no index entry of their own: 25
-- bytes of log for each key, for 80 of space. With less than 90 the space grows faster than the log shrinks.
ALTER TABLE nebis_record SET (fillfactor = 90);

-- name: record_view
-- As before, and with every scope in full.
CREATE OR REPLACE VIEW nebis_record_view AS
SELECT
    record.record_id,
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
    to_timestamp(record.lease_until / 1000000.0) AS lease_until,
    to_timestamp(record.created_at / 1000000.0) AS created_at,
    to_timestamp(record.completed_at / 1000000.0) AS completed_at,
    to_timestamp(record.doubt_since / 1000000.0) AS doubt_since,
    to_timestamp(record.expires_at / 1000000.0) AS expires_at,
    to_timestamp(record.forget_at / 1000000.0) AS forget_at,
    octet_length(record.outcome) AS outcome_bytes,
    encode(record.identity, 'hex') AS identity
FROM nebis_record AS record;
