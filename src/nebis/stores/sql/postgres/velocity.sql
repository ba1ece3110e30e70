-- Meters that fresh keys are counted on.

-- fragment: now
COALESCE(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- fragment: passed
-- How many slots are over since the meter was last added to; a clock that stepped back stays where it was (F025).
LEAST(GREATEST(EXCLUDED.newest - meter.newest, 0), :kept_slots::bigint)::integer

-- name: charge
-- One statement and one lock for each meter, taken in the order of their buckets, so that no two requests wait for each
-- other. Whoever waits for a meter then sees it as the last one left it: no two of them share the last place. A row is
-- returned for each meter that had no room.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
-- A key is fresh if a claim of it would begin a life.
fresh AS MATERIALIZED (
    SELECT clock.now
    FROM clock
    WHERE NOT EXISTS (
        SELECT FROM nebis_record AS record
        WHERE record.identity = :identity::bytea
            AND record.state <> 'E'
            AND (record.state IN ('P', 'D') OR record.expires_at > clock.now)
    )
),
member AS MATERIALIZED (
    SELECT asked.bucket, asked.slot_us, asked.allowed, asked.weight, fresh.now
    FROM fresh
    CROSS JOIN unnest(:bucket::bytea[], :slot_us::bigint[], :allowed::bigint[], :weight::bigint[])
        AS asked (bucket, slot_us, allowed, weight)
),
counted AS (
    INSERT INTO nebis_velocity AS meter (newest, allowed, forget_at, bucket, hits)
    SELECT
        member.now / member.slot_us,
        member.allowed,
        member.now + :kept_slots::bigint * member.slot_us,
        member.bucket,
        member.weight || array_fill(0::bigint, ARRAY[:kept_slots::integer - 1])
    FROM member
    WHERE member.weight <= member.allowed
    ORDER BY member.bucket
    ON CONFLICT (bucket) DO UPDATE
    SET newest = GREATEST(meter.newest, EXCLUDED.newest),
        allowed = EXCLUDED.allowed,
        forget_at = EXCLUDED.forget_at,
        hits = CASE
            WHEN {passed} = 0 THEN (meter.hits[1] + EXCLUDED.hits[1]) || meter.hits[2 : :kept_slots::integer]
            ELSE (
                EXCLUDED.hits[1] || array_fill(0::bigint, ARRAY[{passed} - 1]) || meter.hits
            )[1 : :kept_slots::integer]
        END
    WHERE EXCLUDED.hits[1] + (
        SELECT COALESCE(sum(slot.hits), 0)
        FROM unnest(meter.hits) WITH ORDINALITY AS slot (hits, age)
        WHERE slot.age + {passed} <= :kept_slots::integer
    ) <= EXCLUDED.allowed
    RETURNING meter.bucket
)
SELECT member.bucket, member.now, meter.newest, meter.hits
FROM member
LEFT JOIN nebis_velocity AS meter ON meter.bucket = member.bucket
WHERE NOT EXISTS (SELECT FROM counted WHERE counted.bucket = member.bucket);

-- name: forget
WITH due AS MATERIALIZED (
    SELECT meter.bucket
    FROM nebis_velocity AS meter
    CROSS JOIN (SELECT {now} AS now OFFSET 0) AS clock
    WHERE meter.forget_at <= clock.now
    LIMIT :limit::bigint
    FOR UPDATE OF meter SKIP LOCKED
)
DELETE FROM nebis_velocity AS meter
USING due
WHERE meter.bucket = due.bucket;
