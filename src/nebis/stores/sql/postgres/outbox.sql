-- The outbox in Postgres. Messages are found by their state, never by "greater than the last one seen": a transaction
-- that commits late has a number that is long past (F109).

-- fragment: now
COALESCE(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- fragment: entry_columns
message.sequence, message.message_id, message.topic, message.payload, message.content_type, message.headers,
message.ordering_key, message.state, message.attempts, message.fence, message.created_at, message.available_at,
message.ended_at, message.taken_by, message.last_error

-- name: stage
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO nebis_outbox (
    created_at, available_at, message_id, topic, content_type, ordering_key, headers, payload
)
SELECT
    clock.now, COALESCE(member.available_at, clock.now), member.message_id, member.topic, member.content_type,
    member.ordering_key, member.headers, member.payload
FROM clock
CROSS JOIN unnest(
    :message_id::text[], :topic::text[], :content_type::text[], :ordering_key::text[], :headers::text[],
    :payload::bytea[], :available_at::bigint[]
) WITH ORDINALITY AS member (
    message_id, topic, content_type, ordering_key, headers, payload, available_at, position
)
ORDER BY member.position
ON CONFLICT (message_id) DO NOTHING;

-- name: take
-- First the heads: of each ordering key the earliest that has not ended, and everything without a key. Only whoever
-- holds a head may take what follows it, so two relays never have messages of one key at the same time (F110).
WITH clock AS MATERIALIZED (SELECT {now} AS now),
heads AS MATERIALIZED (
    SELECT message.sequence, message.ordering_key
    FROM nebis_outbox AS message
    CROSS JOIN clock
    WHERE message.state = 0
        AND message.available_at <= clock.now
        AND NOT EXISTS (
            SELECT 1
            FROM nebis_outbox AS earlier
            WHERE earlier.ordering_key = message.ordering_key
                AND earlier.state <= 1
                AND earlier.sequence < message.sequence
        )
    ORDER BY message.available_at, message.sequence
    LIMIT :limit::bigint
    FOR UPDATE OF message SKIP LOCKED
),
followers AS MATERIALIZED (
    SELECT run.sequence
    FROM heads
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT
            follower.sequence,
            bool_and(follower.state = 0 AND follower.available_at <= clock.now)
                OVER (ORDER BY follower.sequence) AS is_free
        FROM (
            SELECT next.sequence, next.state, next.available_at
            FROM nebis_outbox AS next
            WHERE next.ordering_key = heads.ordering_key
                AND next.state <= 1
                AND next.sequence > heads.sequence
            ORDER BY next.sequence
            LIMIT :limit::bigint
        ) AS follower
    ) AS run
    WHERE run.is_free
    -- What is cut off here is the end of each run, never its middle.
    ORDER BY run.sequence
    LIMIT GREATEST(:limit::bigint - (SELECT count(*) FROM heads), 0)
)
UPDATE nebis_outbox AS message
SET fence = message.fence + 1,
    attempts = message.attempts + 1,
    taken_by = :taken_by::text,
    available_at = clock.now + :lease_us::bigint
FROM clock
CROSS JOIN (SELECT heads.sequence FROM heads UNION ALL SELECT followers.sequence FROM followers) AS chosen
WHERE message.sequence = chosen.sequence
    AND message.state = 0
    AND message.available_at <= clock.now
RETURNING {entry_columns};

-- name: mark
-- The lease is not asked: a late relay that nobody followed holds the truth.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE nebis_outbox AS message
SET state = member.state,
    attempts = member.attempts,
    taken_by = NULL,
    available_at = clock.now + member.pause_us,
    ended_at = CASE WHEN member.state >= 2 THEN clock.now END,
    last_error = member.error
FROM clock
CROSS JOIN unnest(
    :sequence::bigint[], :fence::bigint[], :state::integer[], :attempts::integer[], :pause_us::bigint[], :error::text[]
) AS member (sequence, fence, state, attempts, pause_us, error)
WHERE message.sequence = member.sequence
    AND message.fence = member.fence
    AND message.taken_by = :taken_by::text
    AND message.state = 0
RETURNING message.sequence;

-- name: purge
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT message.sequence
    FROM nebis_outbox AS message
    CROSS JOIN clock
    WHERE message.state >= 2
        AND message.ended_at <= clock.now - :keep_us::bigint
    ORDER BY message.ended_at
    LIMIT :limit::bigint
    FOR UPDATE OF message SKIP LOCKED
)
DELETE FROM nebis_outbox AS message
USING due
WHERE message.sequence = due.sequence
RETURNING message.sequence;

-- name: find
SELECT {entry_columns}
FROM nebis_outbox AS message
WHERE message.message_id = :message_id::text;

-- name: entries
SELECT {entry_columns}
FROM nebis_outbox AS message
WHERE (:states::text IS NULL OR strpos(:states::text, message.state::text) > 0)
    AND (:topic::text IS NULL OR message.topic = :topic::text)
    AND message.sequence > :after::bigint
ORDER BY message.sequence
LIMIT :limit::bigint;

-- name: depth
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT
    (SELECT count(*) FROM nebis_outbox AS message WHERE message.state = 0),
    (SELECT count(*) FROM nebis_outbox AS message WHERE message.state = 1),
    (
        SELECT min(message.created_at)
        FROM nebis_outbox AS message
        WHERE message.state = 0
            AND (message.available_at <= clock.now OR message.attempts > 0)
    ),
    clock.now
FROM clock;

-- name: decide
-- Not while a relay has it: nobody could tell whether it was published meanwhile.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE nebis_outbox AS message
SET state = :state::integer,
    attempts = CASE WHEN :state::integer = 0 THEN 0 ELSE message.attempts END,
    available_at = clock.now,
    taken_by = NULL,
    ended_at = CASE WHEN :state::integer >= 2 THEN clock.now END
FROM clock
WHERE message.message_id = :message_id::text
    AND (message.state = 1 OR (message.state = 0 AND (message.taken_by IS NULL OR message.available_at <= clock.now)))
RETURNING {entry_columns};
