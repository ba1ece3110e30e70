-- The memory of Nebis. All times are microseconds since 1970 of this server's clock; nebis_record_view shows them
-- as timestamps. Constraints repeat the invariants (I1, I3, I9 ...), so that a wrong program is refused here too.

-- name: fence_sequence
-- Never cached per session: a fence drawn later must be higher, whoever draws it (I10).
CREATE SEQUENCE nebis_fence AS bigint MINVALUE 1 CACHE 1 NO CYCLE;

-- name: record_table
-- Fixed-width columns come first, which saves the padding between them.
CREATE TABLE nebis_record (
    fence               bigint   NOT NULL,
    lease_until         bigint   NOT NULL,
    created_at          bigint   NOT NULL,
    completed_at        bigint,
    expires_at          bigint   NOT NULL,
    forget_at           bigint   NOT NULL,
    doubt_since         bigint,
    record_id           uuid     NOT NULL,
    attempts            integer  NOT NULL,
    recoveries          integer  NOT NULL,
    fingerprint_version integer  NOT NULL,
    is_dirty            boolean  NOT NULL,
    is_awaited          boolean  NOT NULL,
    state               text     NOT NULL,
    mode                text     NOT NULL,
    identity            bytea    NOT NULL,
    nonce               bytea    NOT NULL,
    fingerprint         bytea    NOT NULL,
    tenant              text     NOT NULL,
    scope               text     NOT NULL,
    operation           text     NOT NULL,
    key                 text     NOT NULL,
    outcome_kind        text,
    -- The name of the one effect of which nobody knows whether it happened. It repeats what nebis_effect says, on the
    -- row that owners lock, so that `complete` can be guarded by this row alone.
    open_effect         text,
    doubt_reason        text,
    resource_type       text,
    resource_id         text,
    rejection           bytea,
    outcome             bytea,
    command             bytea,
    CONSTRAINT record_identity_is_unique PRIMARY KEY (identity),
    CONSTRAINT record_id_is_never_reused UNIQUE (record_id),
    CONSTRAINT record_identity_has_32_bytes CHECK (octet_length(identity) = 32),
    CONSTRAINT record_nonce_has_16_bytes CHECK (octet_length(nonce) = 16),
    CONSTRAINT record_fingerprint_has_32_bytes CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT record_state_is_known CHECK (state IN ('P', 'A', 'D', 'C', 'E')),
    CONSTRAINT record_mode_is_known CHECK (mode IN ('L', 'D', 'O')),
    CONSTRAINT record_fence_was_drawn CHECK (fence >= 1),
    CONSTRAINT record_was_attempted CHECK (attempts >= 1 AND recoveries >= 0),
    CONSTRAINT record_outlives_its_outcome CHECK (forget_at >= expires_at),
    -- I3: an outcome is present exactly when the state is completed; a tombstone still says how it ended.
    CONSTRAINT record_outcome_iff_completed CHECK ((state = 'C') = (outcome IS NOT NULL)),
    CONSTRAINT record_outcome_kind_is_known CHECK (outcome_kind IN ('S', 'R', 'U', 'N')),
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
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- name: outcome_storage
-- Envelopes are compressed before they come here; compressing them again only costs time.
ALTER TABLE nebis_record
    ALTER COLUMN outcome SET STORAGE EXTERNAL,
    ALTER COLUMN command SET STORAGE EXTERNAL;

-- name: doubt_index
-- The only index beside the two keys. One on state or lease would be touched by every completion and renewal, and
-- would cost all of them their in-page updates; lapsed records are found by scanning.
CREATE INDEX "nebis_record_doubt_since" ON nebis_record (doubt_since) WHERE doubt_since IS NOT NULL;

-- name: effect_table
CREATE TABLE nebis_effect (
    record_id      uuid     NOT NULL,
    ordinal        integer  NOT NULL,
    name           text     NOT NULL,
    effect_class   text     NOT NULL,
    derived_key    text     NOT NULL,
    digest         bytea    NOT NULL,
    is_outstanding boolean  NOT NULL,
    recall_until   bigint,
    verdict        text,
    result         bytea,
    CONSTRAINT effect_name_is_unique PRIMARY KEY (record_id, name),
    CONSTRAINT effect_belongs_to_record FOREIGN KEY (record_id) REFERENCES nebis_record (record_id) ON DELETE CASCADE,
    CONSTRAINT effect_class_is_known CHECK (effect_class IN ('T', 'S', 'U', 'F', 'Q', 'O')),
    CONSTRAINT effect_verdict_is_known CHECK (verdict IN ('H', 'R', 'N')),
    CONSTRAINT effect_result_iff_known CHECK ((verdict IS NULL) = (result IS NULL)),
    CONSTRAINT effect_ordinal_counts_from_zero CHECK (ordinal >= 0)
);

-- name: meta_table
CREATE TABLE nebis_meta (
    name  text  NOT NULL,
    value bytea NOT NULL,
    CONSTRAINT meta_name_is_unique PRIMARY KEY (name)
);

-- name: record_view
-- For people: words instead of letters, timestamps instead of microseconds, sizes instead of contents.
CREATE VIEW nebis_record_view AS
SELECT
    record.record_id,
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
    to_timestamp(record.lease_until / 1000000.0) AS lease_until,
    to_timestamp(record.created_at / 1000000.0) AS created_at,
    to_timestamp(record.completed_at / 1000000.0) AS completed_at,
    to_timestamp(record.doubt_since / 1000000.0) AS doubt_since,
    to_timestamp(record.expires_at / 1000000.0) AS expires_at,
    to_timestamp(record.forget_at / 1000000.0) AS forget_at,
    octet_length(record.outcome) AS outcome_bytes,
    encode(record.identity, 'hex') AS identity
FROM nebis_record AS record;
