-- What consumers keep: parked messages, and how far each partition is applied.

-- fragment: now
COALESCE(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- fragment: parked_columns
parked_id, consumer, topic, message_id, partition_name, source_offset, content_type, headers, payload_bytes, reason,
detail, attempts, record_id, state, parked_at, last_at

-- name: park
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO nebis_parked AS parked (
    parked_id, consumer, topic, message_id, partition_name, source_offset, content_type, headers, payload,
    payload_bytes, reason, detail, attempts, record_id, state, parked_at, last_at
)
SELECT
    :parked_id::uuid, :consumer::text, :topic::text, :message_id::text, :partition_name::text, :source_offset::bigint,
    :content_type::text, :headers::text, :payload::bytea, :payload_bytes::bigint, :reason::text, :detail::text,
    :attempts::integer, :record_id::uuid, :state::text, clock.now, clock.now
FROM clock
ON CONFLICT (parked_id) DO UPDATE
SET reason = EXCLUDED.reason,
    detail = EXCLUDED.detail,
    attempts = EXCLUDED.attempts,
    record_id = EXCLUDED.record_id,
    state = EXCLUDED.state,
    last_at = EXCLUDED.last_at;

-- name: unpark
DELETE FROM nebis_parked
WHERE parked_id = :parked_id::uuid
RETURNING parked_id;

-- name: make_due
-- A worker leaves alone what was just tried; a person does not want to wait for that.
UPDATE nebis_parked
SET state = 'redrive', last_at = 0
WHERE parked_id = :parked_id::uuid
RETURNING parked_id;

-- name: find_parked
SELECT {parked_columns}, payload
FROM nebis_parked
WHERE parked_id = :parked_id::uuid;

-- name: list_parked
SELECT {parked_columns}
FROM nebis_parked
WHERE (:consumer::text IS NULL OR consumer = :consumer::text)
    AND (:after_at::bigint IS NULL OR (parked_at, parked_id) > (:after_at::bigint, :after_id::uuid))
ORDER BY parked_at, parked_id
LIMIT :limit::bigint;

-- name: due_letters
SELECT parked_id
FROM nebis_parked
WHERE state = 'redrive'
    AND consumer = :consumer::text
    AND last_at < :before::bigint
ORDER BY last_at, parked_id
LIMIT :limit::bigint;

-- name: count_parked
SELECT consumer, count(*)
FROM nebis_parked
GROUP BY consumer;

-- name: read_progress
SELECT consumer, partition_name, last_offset, gaps, gap_from, gap_to, changed_at
FROM nebis_offset
WHERE (:consumer::text IS NULL OR consumer = :consumer::text)
    AND (:partition_name::text IS NULL OR partition_name = :partition_name::text)
ORDER BY consumer, partition_name;

-- name: advance
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO nebis_offset AS known (consumer, partition_name, last_offset, gaps, changed_at)
SELECT :consumer::text, :partition_name::text, :offset::bigint, 0, clock.now
FROM clock
ON CONFLICT (consumer, partition_name) DO UPDATE
SET last_offset = EXCLUDED.last_offset,
    gaps = known.gaps + CASE WHEN EXCLUDED.last_offset > known.last_offset + 1 THEN 1 ELSE 0 END,
    gap_from = CASE
        WHEN EXCLUDED.last_offset > known.last_offset + 1 THEN known.last_offset + 1 ELSE known.gap_from
    END,
    gap_to = CASE
        WHEN EXCLUDED.last_offset > known.last_offset + 1 THEN EXCLUDED.last_offset - 1 ELSE known.gap_to
    END,
    changed_at = EXCLUDED.changed_at
WHERE EXCLUDED.last_offset > known.last_offset;
