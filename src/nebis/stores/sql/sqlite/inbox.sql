-- What consumers keep: parked messages, and how far each partition is applied.

-- fragment: now
COALESCE(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))

-- fragment: parked_columns
parked_id, consumer, topic, message_id, partition_name, source_offset, content_type, headers, payload_bytes, reason,
detail, attempts, record_id, state, parked_at, last_at

-- name: park
INSERT INTO nebis_parked AS parked (
    parked_id, consumer, topic, message_id, partition_name, source_offset, content_type, headers, payload,
    payload_bytes, reason, detail, attempts, record_id, state, parked_at, last_at
)
VALUES (
    :parked_id, :consumer, :topic, :message_id, :partition_name, :source_offset, :content_type, :headers, :payload,
    :payload_bytes, :reason, :detail, :attempts, :record_id, :state, {now}, {now}
)
ON CONFLICT (parked_id) DO UPDATE
SET reason = EXCLUDED.reason,
    detail = EXCLUDED.detail,
    attempts = EXCLUDED.attempts,
    record_id = EXCLUDED.record_id,
    state = EXCLUDED.state,
    last_at = EXCLUDED.last_at;

-- name: unpark
DELETE FROM nebis_parked
WHERE parked_id = :parked_id
RETURNING parked_id;

-- name: make_due
-- A worker leaves alone what was just tried; a person does not want to wait for that.
UPDATE nebis_parked
SET state = 'redrive', last_at = 0
WHERE parked_id = :parked_id
RETURNING parked_id;

-- name: find_parked
SELECT {parked_columns}, payload
FROM nebis_parked
WHERE parked_id = :parked_id;

-- name: list_parked
SELECT {parked_columns}
FROM nebis_parked
WHERE (:consumer IS NULL OR consumer = :consumer)
    AND (:after_at IS NULL OR (parked_at, parked_id) > (:after_at, :after_id))
ORDER BY parked_at, parked_id
LIMIT :limit;

-- name: due_letters
SELECT parked_id
FROM nebis_parked
WHERE state = 'redrive'
    AND consumer = :consumer
    AND last_at < :before
ORDER BY last_at, parked_id
LIMIT :limit;

-- name: count_parked
SELECT consumer, count(*)
FROM nebis_parked
GROUP BY consumer;

-- name: read_progress
SELECT consumer, partition_name, last_offset, gaps, gap_from, gap_to, changed_at
FROM nebis_offset
WHERE (:consumer IS NULL OR consumer = :consumer)
    AND (:partition_name IS NULL OR partition_name = :partition_name)
ORDER BY consumer, partition_name;

-- name: advance
INSERT INTO nebis_offset AS known (consumer, partition_name, last_offset, gaps, changed_at)
VALUES (:consumer, :partition_name, :offset, 0, {now})
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
