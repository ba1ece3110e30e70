-- Meters: how often fresh keys came lately. Emptying them forgets what was counted, and nothing else.
-- oldest-code: 0001_record

-- name: velocity_table
-- One row for each thing that is counted, under a keyed hash of what it is.
CREATE TABLE nebis_velocity (
    bucket    BLOB    NOT NULL,
    -- The number of the newest slot; `hits` has a count for it and for those before it, as a JSON array.
    newest    INTEGER NOT NULL,
    allowed   INTEGER NOT NULL,
    hits      TEXT    NOT NULL,
    forget_at INTEGER NOT NULL,
    CONSTRAINT velocity_bucket_is_unique PRIMARY KEY (bucket),
    CONSTRAINT velocity_bucket_has_32_bytes CHECK (length(bucket) = 32),
    CONSTRAINT velocity_has_11_slots CHECK (json_array_length(hits) = 11)
) STRICT, WITHOUT ROWID;
