-- The outbox in SQLite. Messages are found by their state, never by "greater than the last one seen".

-- fragment: now
COALESCE(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))

-- fragment: entry_columns
sequence, message_id, topic, payload, content_type, headers, ordering_key, state, attempts, fence, created_at,
available_at, ended_at, taken_by, last_error

-- name: stage
INSERT INTO nebis_outbox (
    created_at, available_at, message_id, topic, content_type, ordering_key, headers, payload
)
VALUES (
    {now}, COALESCE(:available_at, {now}), :message_id, :topic, :content_type, :ordering_key, :headers, :payload
)
ON CONFLICT (message_id) DO NOTHING;

-- name: take
-- A message is held back by an earlier one of its key that is parked, taken, or not due yet. In the order of staging,
-- so that what the limit cuts off is the end of each key's run, never its middle.
UPDATE nebis_outbox
SET fence = fence + 1,
    attempts = attempts + 1,
    taken_by = :taken_by,
    available_at = {now} + :lease_us
WHERE sequence IN (
    SELECT message.sequence
    FROM nebis_outbox AS message
    WHERE message.state = 0
        AND message.available_at <= {now}
        AND NOT EXISTS (
            SELECT 1
            FROM nebis_outbox AS earlier
            WHERE earlier.ordering_key = message.ordering_key
                AND earlier.state <= 1
                AND earlier.sequence < message.sequence
                AND (earlier.state = 1 OR earlier.available_at > {now})
        )
    ORDER BY message.sequence
    LIMIT :limit
)
RETURNING {entry_columns};

-- name: mark
-- The lease is not asked: a late relay that nobody followed holds the truth.
UPDATE nebis_outbox
SET state = :state,
    attempts = :attempts,
    taken_by = NULL,
    available_at = {now} + :pause_us,
    ended_at = CASE WHEN :state >= 2 THEN {now} END,
    last_error = :error
WHERE sequence = :sequence
    AND fence = :fence
    AND taken_by = :taken_by
    AND state = 0
RETURNING sequence;

-- name: purge
DELETE FROM nebis_outbox
WHERE sequence IN (
    SELECT message.sequence
    FROM nebis_outbox AS message
    WHERE message.state >= 2
        AND message.ended_at <= {now} - :keep_us
    ORDER BY message.ended_at
    LIMIT :limit
)
RETURNING sequence;

-- name: find
SELECT {entry_columns}
FROM nebis_outbox
WHERE message_id = :message_id;

-- name: entries
SELECT {entry_columns}
FROM nebis_outbox
WHERE (:states IS NULL OR instr(:states, state) > 0)
    AND (:topic IS NULL OR topic = :topic)
    AND sequence > :after
ORDER BY sequence
LIMIT :limit;

-- name: depth
SELECT
    (SELECT count(*) FROM nebis_outbox WHERE state = 0),
    (SELECT count(*) FROM nebis_outbox WHERE state = 1),
    (SELECT min(created_at) FROM nebis_outbox WHERE state = 0 AND (available_at <= {now} OR attempts > 0)),
    {now};

-- name: decide
-- Not while a relay has it: nobody could tell whether it was published meanwhile.
UPDATE nebis_outbox
SET state = :state,
    attempts = CASE WHEN :state = 0 THEN 0 ELSE attempts END,
    available_at = {now},
    taken_by = NULL,
    ended_at = CASE WHEN :state >= 2 THEN {now} END
WHERE message_id = :message_id
    AND (state = 1 OR (state = 0 AND (taken_by IS NULL OR available_at <= {now})))
RETURNING {entry_columns};
