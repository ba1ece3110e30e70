-- Messages: what was staged to be published, what a consumer could not take, and how far it has read.
-- oldest-code: 0001_record

-- name: outbox_table
CREATE TABLE nebis_outbox (
    sequence     INTEGER NOT NULL,
    message_id   TEXT    NOT NULL,
    topic        TEXT    NOT NULL,
    ordering_key TEXT,
    content_type TEXT    NOT NULL,
    headers      TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    -- 0 pending, 1 parked, 2 published, 3 discarded: up to 1 it holds back what follows under its ordering key.
    state        INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    fence        INTEGER NOT NULL DEFAULT 0,
    taken_by     TEXT,
    created_at   INTEGER NOT NULL,
    -- When it may be tried next. A relay that takes it moves this by its lease, and a failure by the pause after it.
    available_at INTEGER NOT NULL,
    ended_at     INTEGER,
    last_error   TEXT,
    CONSTRAINT outbox_sequence_is_unique PRIMARY KEY (sequence),
    CONSTRAINT outbox_message_id_is_unique UNIQUE (message_id),
    CONSTRAINT outbox_names_its_message CHECK (message_id <> '' AND topic <> ''),
    CONSTRAINT outbox_state_is_known CHECK (state BETWEEN 0 AND 3),
    CONSTRAINT outbox_ended_at_iff_ended CHECK ((state >= 2) = (ended_at IS NOT NULL)),
    CONSTRAINT outbox_taken_only_while_pending CHECK (taken_by IS NULL OR state = 0),
    CONSTRAINT outbox_counts_from_zero CHECK (attempts >= 0 AND fence >= 0)
) STRICT;

-- name: outbox_available_index
CREATE INDEX "nebis_outbox_available_at" ON nebis_outbox (available_at, sequence) WHERE state = 0;

-- name: outbox_order_index
CREATE INDEX "nebis_outbox_ordering_key" ON nebis_outbox (ordering_key, sequence)
WHERE state <= 1 AND ordering_key IS NOT NULL;

-- name: outbox_parked_index
CREATE INDEX "nebis_outbox_parked" ON nebis_outbox (sequence) WHERE state = 1;

-- name: outbox_ended_index
CREATE INDEX "nebis_outbox_ended_at" ON nebis_outbox (ended_at) WHERE state >= 2;

-- name: parked_table
-- What a consumer received and does not run, until a person sends it in again.
CREATE TABLE nebis_parked (
    parked_id      BLOB    NOT NULL,
    consumer       TEXT    NOT NULL,
    -- Absent where the message had none that could be used.
    message_id     TEXT,
    topic          TEXT    NOT NULL,
    partition_name TEXT,
    source_offset  INTEGER,
    content_type   TEXT    NOT NULL,
    headers        TEXT    NOT NULL,
    -- Absent where it is larger than what is kept.
    payload        BLOB,
    payload_bytes  INTEGER NOT NULL,
    reason         TEXT    NOT NULL,
    detail         TEXT    NOT NULL,
    attempts       INTEGER NOT NULL,
    record_id      BLOB,
    state          TEXT    NOT NULL,
    parked_at      INTEGER NOT NULL,
    last_at        INTEGER NOT NULL,
    CONSTRAINT parked_id_is_unique PRIMARY KEY (parked_id),
    CONSTRAINT parked_state_is_known CHECK (state IN ('parked', 'redrive')),
    CONSTRAINT parked_names_its_consumer CHECK (consumer <> ''),
    CONSTRAINT parked_gives_a_reason CHECK (reason <> ''),
    CONSTRAINT parked_counts_from_zero CHECK (attempts >= 0 AND payload_bytes >= 0)
) STRICT;

-- name: parked_index
CREATE INDEX "nebis_parked_consumer" ON nebis_parked (consumer, parked_at, parked_id);

-- name: parked_redrive_index
CREATE INDEX "nebis_parked_redrive" ON nebis_parked (consumer, last_at, parked_id) WHERE state = 'redrive';

-- name: offset_table
-- How far a consumer has applied each partition.
CREATE TABLE nebis_offset (
    consumer       TEXT    NOT NULL,
    partition_name TEXT    NOT NULL,
    last_offset    INTEGER NOT NULL,
    gaps           INTEGER NOT NULL DEFAULT 0,
    -- The first and the last offset of the latest gap.
    gap_from       INTEGER,
    gap_to         INTEGER,
    changed_at     INTEGER NOT NULL,
    CONSTRAINT offset_partition_is_unique PRIMARY KEY (consumer, partition_name),
    CONSTRAINT offset_names_its_consumer CHECK (consumer <> ''),
    CONSTRAINT offset_gaps_count_from_zero CHECK (gaps >= 0),
    CONSTRAINT offset_gap_is_whole CHECK ((gap_from IS NULL) = (gap_to IS NULL))
) STRICT, WITHOUT ROWID;
