-- Meters: how often fresh keys came lately. Emptying them forgets what was counted, and nothing else.
-- oldest-code: 0001_record

-- name: velocity_table
-- One row for each thing that is counted, under a keyed hash of what it is; counted in place: half of every page is
-- kept free for it.
CREATE TABLE nebis_velocity (
    -- The number of the newest slot; `hits` has a count for it and for those before it.
    newest    bigint   NOT NULL,
    allowed   bigint   NOT NULL,
    forget_at bigint   NOT NULL,
    bucket    bytea    NOT NULL,
    hits      bigint[] NOT NULL,
    CONSTRAINT velocity_bucket_is_unique PRIMARY KEY (bucket),
    CONSTRAINT velocity_bucket_has_32_bytes CHECK (octet_length(bucket) = 32),
    CONSTRAINT velocity_has_11_slots CHECK (cardinality(hits) = 11)
) WITH (fillfactor = 50);
