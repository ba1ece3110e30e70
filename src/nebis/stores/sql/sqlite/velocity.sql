-- Meters that fresh keys are counted on. Read, decided and written between BEGIN IMMEDIATE and COMMIT.

-- fragment: now
COALESCE(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))

-- name: look
-- A key is fresh if a claim of it would begin a life.
SELECT
    {now},
    EXISTS (
        SELECT 1
        FROM nebis_record
        WHERE identity = :identity
            AND state <> 'E'
            AND (state IN ('P', 'D') OR expires_at > {now})
    );

-- name: read_meter
SELECT bucket, newest, hits
FROM nebis_velocity
WHERE bucket = :bucket;

-- name: write_meter
INSERT INTO nebis_velocity (bucket, newest, allowed, hits, forget_at)
VALUES (:bucket, :newest, :allowed, :hits, :forget_at)
ON CONFLICT (bucket) DO UPDATE
SET newest = excluded.newest,
    allowed = excluded.allowed,
    hits = excluded.hits,
    forget_at = excluded.forget_at;

-- name: forget
DELETE FROM nebis_velocity
WHERE bucket IN (
    SELECT bucket
    FROM nebis_velocity
    WHERE forget_at <= {now}
    LIMIT :limit
);
