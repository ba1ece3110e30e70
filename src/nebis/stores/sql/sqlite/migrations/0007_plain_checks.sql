-- The same constraints in words that cost less. For each row that is written SQLite makes a table of its own from every
-- list of three or more that a CHECK has, which was a third of what a claim and its completion took.
-- A CHECK can only be changed by writing its table anew: about 15 seconds for a million records, in which nobody else
-- writes, and as much room again in the file, which later records use. Details move too, as they refer to the records.
-- oldest-code: 0001_record

-- name: view_goes
DROP VIEW nebis_record_view;

-- name: insert_trigger_goes
DROP TRIGGER "nebis_record_fence_inserted";

-- name: update_trigger_goes
DROP TRIGGER "nebis_record_fence_updated";

-- name: doubt_index_goes
DROP INDEX "nebis_record_doubt_since";

-- name: records_step_aside
ALTER TABLE nebis_record RENAME TO nebis_record_before;

-- name: record_table
CREATE TABLE nebis_record (
    identity            BLOB    NOT NULL,
    record_id           BLOB    NOT NULL,
    tenant              TEXT    NOT NULL,
    scope               TEXT    NOT NULL,
    operation           TEXT    NOT NULL,
    key                 TEXT    NOT NULL,
    fingerprint         BLOB    NOT NULL,
    fingerprint_version INTEGER NOT NULL,
    mode                TEXT    NOT NULL,
    state               TEXT    NOT NULL,
    fence               INTEGER NOT NULL,
    nonce               BLOB    NOT NULL,
    lease_until         INTEGER NOT NULL,
    attempts            INTEGER NOT NULL,
    recoveries          INTEGER NOT NULL,
    is_dirty            INTEGER NOT NULL,
    is_awaited          INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    completed_at        INTEGER,
    expires_at          INTEGER NOT NULL,
    forget_at           INTEGER NOT NULL,
    doubt_since         INTEGER,
    doubt_reason        TEXT,
    rejection           BLOB,
    outcome_kind        TEXT,
    outcome             BLOB,
    resource_type       TEXT,
    resource_id         TEXT,
    command             BLOB,
    -- The name of the one effect of which nobody knows whether it happened; it repeats what nebis_effect says.
    open_effect         TEXT,
    CONSTRAINT record_identity_is_unique PRIMARY KEY (identity),
    CONSTRAINT record_id_is_never_reused UNIQUE (record_id),
    CONSTRAINT record_identity_has_32_bytes CHECK (length(identity) = 32),
    CONSTRAINT record_id_has_16_bytes CHECK (length(record_id) = 16),
    CONSTRAINT record_nonce_has_16_bytes CHECK (length(nonce) = 16),
    CONSTRAINT record_fingerprint_has_32_bytes CHECK (length(fingerprint) = 32),
    CONSTRAINT record_state_is_known CHECK (state = 'P' OR state = 'A' OR state = 'D' OR state = 'C' OR state = 'E'),
    CONSTRAINT record_mode_is_known CHECK (mode = 'L' OR mode = 'D' OR mode = 'O'),
    CONSTRAINT record_flags_are_booleans CHECK (is_dirty IN (0, 1) AND is_awaited IN (0, 1)),
    CONSTRAINT record_fence_was_drawn CHECK (fence >= 1),
    CONSTRAINT record_was_attempted CHECK (attempts >= 1 AND recoveries >= 0),
    CONSTRAINT record_outlives_its_outcome CHECK (forget_at >= expires_at),
    -- I3: an outcome is present exactly when the state is completed; a tombstone still says how it ended.
    CONSTRAINT record_outcome_iff_completed CHECK ((state = 'C') = (outcome IS NOT NULL)),
    CONSTRAINT record_outcome_kind_is_known CHECK (
        outcome_kind = 'S' OR outcome_kind = 'R' OR outcome_kind = 'U' OR outcome_kind = 'N'
    ),
    CONSTRAINT record_outcome_kind_iff_ended CHECK ((state IN ('C', 'E')) = (outcome_kind IS NOT NULL)),
    CONSTRAINT record_completed_at_iff_ended CHECK ((state IN ('C', 'E')) = (completed_at IS NOT NULL)),
    CONSTRAINT record_ended_keeps_no_work CHECK (state NOT IN ('C', 'E') OR (command IS NULL AND rejection IS NULL)),
    CONSTRAINT record_doubt_since_iff_in_doubt CHECK ((state = 'D') = (doubt_since IS NOT NULL)),
    CONSTRAINT record_doubt_reason_iff_in_doubt CHECK ((state = 'D') = (doubt_reason IS NOT NULL)),
    -- I9: what is opaque is dirty from its claim, and only a clean record is given back or started over.
    CONSTRAINT record_dirty_fits_state CHECK (
        CASE state WHEN 'P' THEN is_dirty OR mode <> 'O' WHEN 'D' THEN is_dirty ELSE NOT is_dirty END
    ),
    CONSTRAINT record_awaited_only_while_running CHECK (state = 'P' OR NOT is_awaited),
    CONSTRAINT record_resource_is_whole CHECK ((resource_type IS NULL) = (resource_id IS NULL))
) STRICT;

-- name: records_move
INSERT INTO nebis_record (
    rowid,
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, completed_at, expires_at, forget_at,
    doubt_since, doubt_reason, rejection, outcome_kind, outcome, resource_type, resource_id, command, open_effect
)
SELECT
    rowid,
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, completed_at, expires_at, forget_at,
    doubt_since, doubt_reason, rejection, outcome_kind, outcome, resource_type, resource_id, command, open_effect
FROM nebis_record_before;

-- name: effects_step_aside
ALTER TABLE nebis_effect RENAME TO nebis_effect_before;

-- name: effect_table
CREATE TABLE nebis_effect (
    record_id      BLOB    NOT NULL,
    ordinal        INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    effect_class   TEXT    NOT NULL,
    derived_key    TEXT    NOT NULL,
    digest         BLOB    NOT NULL,
    is_outstanding INTEGER NOT NULL,
    recall_until   INTEGER,
    verdict        TEXT,
    result         BLOB,
    CONSTRAINT effect_name_is_unique PRIMARY KEY (record_id, name),
    CONSTRAINT effect_belongs_to_record FOREIGN KEY (record_id) REFERENCES nebis_record (record_id) ON DELETE CASCADE,
    CONSTRAINT effect_class_is_known CHECK (
        effect_class = 'T' OR effect_class = 'S' OR effect_class = 'U' OR effect_class = 'F' OR effect_class = 'Q'
        OR effect_class = 'O'
    ),
    CONSTRAINT effect_verdict_is_known CHECK (verdict = 'H' OR verdict = 'R' OR verdict = 'N'),
    CONSTRAINT effect_result_iff_known CHECK ((verdict IS NULL) = (result IS NULL)),
    CONSTRAINT effect_flag_is_boolean CHECK (is_outstanding IN (0, 1)),
    CONSTRAINT effect_ordinal_counts_from_zero CHECK (ordinal >= 0)
) STRICT;

-- name: effects_move
INSERT INTO nebis_effect (
    record_id, ordinal, name, effect_class, derived_key, digest, is_outstanding, recall_until, verdict, result
)
SELECT
    record_id, ordinal, name, effect_class, derived_key, digest, is_outstanding, recall_until, verdict, result
FROM nebis_effect_before;

-- name: effects_go
DROP TABLE nebis_effect_before;

-- name: attempts_step_aside
ALTER TABLE nebis_attempt RENAME TO nebis_attempt_before;

-- name: attempt_table
CREATE TABLE nebis_attempt (
    record_id  BLOB    NOT NULL,
    fence      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    lease_us   INTEGER NOT NULL DEFAULT 0,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    how        TEXT    NOT NULL,
    CONSTRAINT attempt_fence_is_unique PRIMARY KEY (record_id, fence),
    CONSTRAINT attempt_belongs_to_record
        FOREIGN KEY (record_id) REFERENCES nebis_record (record_id) ON UPDATE CASCADE ON DELETE CASCADE,
    CONSTRAINT attempt_fence_was_drawn CHECK (fence >= 1),
    CONSTRAINT attempt_how_is_known CHECK (
        how = 'new' OR how = 'available' OR how = 'taken_over' OR how = 'resumed' OR how = 'run_again'
    )
) STRICT, WITHOUT ROWID;

-- name: attempts_move
INSERT INTO nebis_attempt (
    record_id, fence, started_at, lease_us, host, pid, how
)
SELECT
    record_id, fence, started_at, lease_us, host, pid, how
FROM nebis_attempt_before;

-- name: attempts_go
DROP TABLE nebis_attempt_before;

-- name: records_go
-- Last: nothing refers to them any more that would go with them.
DROP TABLE nebis_record_before;

-- name: doubt_index
CREATE INDEX "nebis_record_doubt_since" ON nebis_record (doubt_since) WHERE doubt_since IS NOT NULL;

-- name: fence_after_insert
-- The counter follows every fence that is stored, by whatever statement, so that none can ever be given twice (I10).
CREATE TRIGGER "nebis_record_fence_inserted" AFTER INSERT ON nebis_record
BEGIN
    UPDATE nebis_fence SET last = max(last, NEW.fence);
END;

-- name: fence_after_update
CREATE TRIGGER "nebis_record_fence_updated" AFTER UPDATE OF fence ON nebis_record
WHEN NEW.fence <> OLD.fence
BEGIN
    UPDATE nebis_fence SET last = max(last, NEW.fence);
END;

-- name: record_view
-- For people: words instead of letters, readable times instead of microseconds, sizes instead of contents.
CREATE VIEW nebis_record_view AS
SELECT
    lower(
        substr(hex(record.record_id), 1, 8) || '-' || substr(hex(record.record_id), 9, 4) || '-'
        || substr(hex(record.record_id), 13, 4) || '-' || substr(hex(record.record_id), 17, 4) || '-'
        || substr(hex(record.record_id), 21)
    ) AS record_id,
    record.tenant,
    record.scope,
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
