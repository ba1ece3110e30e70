-- What people did, and what came too late to count. Nothing here decides anything about a record.
-- oldest-code: 0001_record

-- name: attempt_follows_its_record
-- A key that begins a new life gets a new id, also from code that does not know this table: its history must not be in
-- the way. `lease_us` tells when an owner was last heard of.
ALTER TABLE nebis_attempt
    DROP CONSTRAINT attempt_belongs_to_record,
    ADD CONSTRAINT attempt_belongs_to_record
        FOREIGN KEY (record_id) REFERENCES nebis_record (record_id) ON UPDATE CASCADE ON DELETE CASCADE,
    ADD COLUMN lease_us bigint NOT NULL DEFAULT 0;

-- name: audit_table
-- It outlives the records that it is about, so it refers to none of them.
CREATE TABLE nebis_audit (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY,
    at         bigint NOT NULL,
    fence_seen bigint,
    record_id  uuid,
    who        text   NOT NULL,
    what       text   NOT NULL,
    reason     text   NOT NULL,
    answer     text   NOT NULL,
    CONSTRAINT audit_id_is_unique PRIMARY KEY (audit_id),
    CONSTRAINT audit_names_somebody CHECK (who <> '' AND what <> ''),
    CONSTRAINT audit_gives_a_reason CHECK (reason <> '')
);

-- name: audit_index
CREATE INDEX "nebis_audit_record_id" ON nebis_audit (record_id, audit_id);

-- name: audit_refusal
CREATE FUNCTION nebis_refuse_rewriting() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only';
END
$$;

-- name: audit_is_append_only
CREATE TRIGGER "nebis_audit_is_append_only"
BEFORE UPDATE OR DELETE OR TRUNCATE ON nebis_audit
FOR EACH STATEMENT
EXECUTE FUNCTION nebis_refuse_rewriting();

-- name: late_result_table
-- Kept whatever became of the record: that it is gone is when a late result matters most.
CREATE TABLE nebis_late_result (
    fence     bigint NOT NULL,
    kept_at   bigint NOT NULL,
    forget_at bigint NOT NULL,
    record_id uuid   NOT NULL,
    -- Empty for the result of the whole operation.
    effect    text   NOT NULL,
    body      bytea  NOT NULL,
    CONSTRAINT late_result_is_unique PRIMARY KEY (record_id, fence, effect),
    CONSTRAINT late_result_fence_was_drawn CHECK (fence >= 1)
);

-- name: late_result_storage
ALTER TABLE nebis_late_result ALTER COLUMN body SET STORAGE EXTERNAL;
