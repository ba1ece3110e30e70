-- What people did, and what came too late to count. Nothing here decides anything about a record.
-- oldest-code: 0001_record

-- name: attempt_table_ends
-- A constraint cannot be changed here, so the table is made anew; no code has written to it yet.
DROP TABLE nebis_attempt;

-- name: attempt_table
-- A key that begins a new life gets a new id, also from code that does not know this table: its history must not be in
-- the way. `lease_us` tells when an owner was last heard of.
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
    CONSTRAINT attempt_how_is_known CHECK (how IN ('new', 'available', 'taken_over', 'resumed', 'run_again'))
) STRICT, WITHOUT ROWID;

-- name: audit_table
-- It outlives the records that it is about, so it refers to none of them.
CREATE TABLE nebis_audit (
    audit_id   INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    record_id  BLOB,
    fence_seen INTEGER,
    who        TEXT    NOT NULL,
    what       TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    answer     TEXT    NOT NULL,
    CONSTRAINT audit_id_is_unique PRIMARY KEY (audit_id),
    CONSTRAINT audit_names_somebody CHECK (who <> '' AND what <> ''),
    CONSTRAINT audit_gives_a_reason CHECK (reason <> '')
) STRICT;

-- name: audit_index
CREATE INDEX "nebis_audit_record_id" ON nebis_audit (record_id, audit_id);

-- name: audit_is_not_changed
CREATE TRIGGER "nebis_audit_is_not_changed" BEFORE UPDATE ON nebis_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

-- name: audit_is_not_deleted
CREATE TRIGGER "nebis_audit_is_not_deleted" BEFORE DELETE ON nebis_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

-- name: late_result_table
-- Kept whatever became of the record: that it is gone is when a late result matters most.
CREATE TABLE nebis_late_result (
    record_id BLOB    NOT NULL,
    fence     INTEGER NOT NULL,
    -- Empty for the result of the whole operation.
    effect    TEXT    NOT NULL,
    kept_at   INTEGER NOT NULL,
    forget_at INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    CONSTRAINT late_result_is_unique PRIMARY KEY (record_id, fence, effect),
    CONSTRAINT late_result_fence_was_drawn CHECK (fence >= 1)
) STRICT;
