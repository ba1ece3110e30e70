-- Every statement of the SQLite store. Those that write run between BEGIN IMMEDIATE and COMMIT, so nobody else writes
-- between them and no row needs a lock of its own; `claim_all` and `complete_all` are transactions of their own.
-- Plural ones run once per member. Where the members are a list of rows named "member", the list grows to hold many of
-- them, and one run is for all; a row without an identity is no member. OR FAIL saves a copy of every page: what a
-- statement that fails left behind is rolled back with all the rest. NULLIF(:name, 0) lets a member say NULL with a
-- number, which is bound for less.
-- 'now' stands still within one run of a statement, however often it is written, and for all members of a plural one.
-- A plural one that returns nothing is answered with the identity of each member that it changed.

-- fragment: now
COALESCE(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))

-- fragment: record_columns
record.identity, record.record_id, record.tenant, record.scope, record.operation, record.key, record.fingerprint,
record.fingerprint_version, record.mode, record.state, record.fence, record.nonce, record.lease_until,
record.attempts, record.recoveries, record.is_dirty, record.is_awaited, record.created_at, record.completed_at,
record.expires_at, record.forget_at, record.doubt_since, record.doubt_reason, record.rejection, record.outcome_kind,
record.outcome, record.resource_type, record.resource_id, record.command

-- fragment: effect_columns
effect.name, effect.effect_class, effect.derived_key, effect.digest, effect.is_outstanding, effect.recall_until,
effect.verdict, effect.result

-- fragment: is_owner
-- I2: only the newest fence of this very life writes.
identity = :identity
AND record_id = :record_id
AND fence = :fence
AND nonce = :nonce

-- name: claim
-- Begins the first life of a key: exactly what `first_life` says. A trigger moves the fence counter on.
INSERT OR FAIL INTO nebis_record (
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, expires_at, forget_at, command
)
VALUES (
    :identity, :record_id, :tenant, :scope, :operation, :key, :fingerprint, :fingerprint_version, :mode, 'P',
    COALESCE(:last_fence, (SELECT last FROM nebis_fence)) + :position, :nonce, {now} + :lease_us, 1, 0, :mode = 'O',
    FALSE, {now}, {now} + :outcome_us, {now} + :outcome_us + :metadata_us, NULLIF(:command, 0)
)
ON CONFLICT (identity) DO NOTHING
RETURNING identity, fence, created_at;

-- name: complete
-- The lease is not asked: a late owner that nobody fenced holds the truth.
UPDATE OR FAIL nebis_record
SET state = 'C',
    is_dirty = FALSE,
    is_awaited = FALSE,
    completed_at = {now},
    expires_at = max(expires_at, {now} + :outcome_us),
    forget_at = max(forget_at, max(expires_at, {now} + :outcome_us) + :forget_us),
    doubt_since = NULL,
    doubt_reason = NULL,
    rejection = NULL,
    outcome_kind = :outcome_kind,
    outcome = :outcome,
    resource_type = COALESCE(NULLIF(:resource_type, 0), resource_type),
    resource_id = COALESCE(NULLIF(:resource_id, 0), resource_id),
    command = NULL
WHERE {is_owner}
    AND state IN ('P', 'D')
    AND open_effect IS NULL
    AND (rejection IS NULL OR :outcome_kind = 'R');

-- name: claim_all
-- `claim` for many at once: for all of them or, if any of their keys is taken, for nobody. One statement is one
-- transaction, and SQLite needs nobody from its beginning to its end; afterwards no more is known than how many rows it
-- wrote, and the number of the last one. So that is its fence. No fence is given twice and every row comes with one, so
-- that no row has a higher number than the last fence. Without OR FAIL, as nothing may be left of one that fails.
INSERT INTO nebis_record (
    rowid, identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence,
    nonce, lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, expires_at, forget_at, command
)
SELECT
    fences.last + member.position, identity, record_id, tenant, scope, operation, key, fingerprint,
    fingerprint_version, mode, 'P', fences.last + member.position, nonce, :now + lease_us, 1, 0, mode = 'O', FALSE, :now,
    :now + outcome_us, :now + outcome_us + metadata_us, NULLIF(command, 0)
FROM nebis_fence AS fences
CROSS JOIN (
    WITH member (
        identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, nonce, lease_us,
        outcome_us, metadata_us, command, position
    ) AS (
        VALUES (
            :identity, :record_id, :tenant, :scope, :operation, :key, :fingerprint, :fingerprint_version, :mode, :nonce,
            :lease_us, :outcome_us, :metadata_us, :command, :position
        )
    )
    SELECT *
    FROM member
    WHERE identity IS NOT NULL
        AND NOT EXISTS (
            SELECT *
            FROM member AS asked
            WHERE EXISTS (
                SELECT *
                FROM nebis_record AS twin
                WHERE twin.identity = asked.identity
            )
        )
) AS member;

-- name: complete_all
-- `complete` for many at once, as `claim_all` is to `claim`: for all of them, or for nobody.
UPDATE nebis_record AS record
SET state = 'C',
    is_dirty = FALSE,
    is_awaited = FALSE,
    completed_at = :now,
    expires_at = max(record.expires_at, :now + done.outcome_us),
    forget_at = max(record.forget_at, max(record.expires_at, :now + done.outcome_us) + done.forget_us),
    doubt_since = NULL,
    doubt_reason = NULL,
    rejection = NULL,
    outcome_kind = done.outcome_kind,
    outcome = done.outcome,
    resource_type = COALESCE(NULLIF(done.resource_type, 0), record.resource_type),
    resource_id = COALESCE(NULLIF(done.resource_id, 0), record.resource_id),
    command = NULL
FROM (
    WITH member (
        identity, record_id, fence, nonce, outcome_kind, outcome, outcome_us, forget_us, resource_type, resource_id
    ) AS (
        VALUES (
            :identity, :record_id, :fence, :nonce, :outcome_kind, :outcome, :outcome_us, :forget_us, :resource_type,
            :resource_id
        )
    )
    SELECT *
    FROM member
    WHERE NOT EXISTS (
        SELECT *
        FROM member AS owner
        WHERE owner.identity IS NOT NULL
            AND NOT EXISTS (
                SELECT *
                FROM nebis_record AS owned
                WHERE owned.identity = owner.identity
                    AND owned.record_id = owner.record_id
                    AND owned.fence = owner.fence
                    AND owned.nonce = owner.nonce
                    AND owned.state IN ('P', 'D')
                    AND owned.open_effect IS NULL
                    AND (owned.rejection IS NULL OR owner.outcome_kind = 'R')
            )
    )
) AS done
WHERE record.identity = done.identity
    AND record.record_id = done.record_id
    AND record.fence = done.fence
    AND record.nonce = done.nonce;

-- name: renew
UPDATE nebis_record
SET lease_until = max(lease_until, {now} + :lease_us)
WHERE {is_owner}
    AND state = 'P';

-- name: release
-- Never when dirty (F076).
UPDATE nebis_record
SET state = 'A',
    is_awaited = FALSE
WHERE {is_owner}
    AND state = 'P'
    AND NOT is_dirty
    AND rejection IS NULL;

-- name: read
-- One row per effect; a member without a record still gets a row, with the clock on it. The fence is the next unused
-- one for this member; nobody else can take it before this transaction ends.
SELECT
    {record_columns}, {effect_columns}, member.identity, {now}, (SELECT last FROM nebis_fence) + member.position
FROM (
    WITH member (identity, position) AS (VALUES (:identity, :position))
    SELECT *
    FROM member
    WHERE identity IS NOT NULL
) AS member
LEFT JOIN nebis_record AS record ON record.identity = member.identity
LEFT JOIN nebis_effect AS effect ON effect.record_id = record.record_id
ORDER BY effect.ordinal;

-- name: read_ended
-- All that a replay tells, of those members that are completed. Who is not answered is read whole, and so is a record with a
-- letter that nobody knows, to be refused there.
SELECT
    record.identity, record.record_id, record.operation, record.fingerprint_version, record.fingerprint,
    record.outcome_kind, record.outcome, record.expires_at, {now}
FROM (
    WITH member (identity) AS (VALUES (:identity))
    SELECT *
    FROM member
    WHERE identity IS NOT NULL
) AS member
JOIN nebis_record AS record ON record.identity = member.identity
WHERE record.state = 'C'
    AND record.mode IN ('L', 'D', 'O');

-- name: save
-- Writes a whole record back. The old life and fence are guarded although the write lock is held.
UPDATE nebis_record
SET record_id = :record_id,
    tenant = :tenant,
    scope = :scope,
    operation = :operation,
    key = :key,
    fingerprint = :fingerprint,
    fingerprint_version = :fingerprint_version,
    mode = :mode,
    state = :state,
    fence = :fence,
    nonce = :nonce,
    lease_until = :lease_until,
    attempts = :attempts,
    recoveries = :recoveries,
    is_dirty = :is_dirty,
    is_awaited = :is_awaited,
    created_at = :created_at,
    completed_at = :completed_at,
    expires_at = :expires_at,
    forget_at = :forget_at,
    doubt_since = :doubt_since,
    doubt_reason = :doubt_reason,
    rejection = :rejection,
    outcome_kind = :outcome_kind,
    outcome = :outcome,
    resource_type = :resource_type,
    resource_id = :resource_id,
    command = :command,
    open_effect = :open_effect
WHERE identity = :identity
    AND record_id = :old_record_id
    AND fence = :old_fence
RETURNING identity;

-- name: drop_record
DELETE FROM nebis_record
WHERE identity = :identity
    AND record_id = :old_record_id
    AND fence = :old_fence
RETURNING identity;

-- name: save_effect
INSERT INTO nebis_effect (
    record_id, ordinal, name, effect_class, derived_key, digest, is_outstanding, recall_until, verdict, result
)
VALUES (
    :record_id, :ordinal, :name, :effect_class, :derived_key, :digest, :is_outstanding, :recall_until, :verdict, :result
)
ON CONFLICT (record_id, name) DO UPDATE
SET ordinal = excluded.ordinal,
    effect_class = excluded.effect_class,
    derived_key = excluded.derived_key,
    digest = excluded.digest,
    is_outstanding = excluded.is_outstanding,
    recall_until = excluded.recall_until,
    verdict = excluded.verdict,
    result = excluded.result
RETURNING record_id;

-- name: drop_effect
DELETE FROM nebis_effect
WHERE record_id = :record_id
    AND name = :name
RETURNING record_id;

-- name: drop_effects
DELETE FROM nebis_effect
WHERE record_id = :record_id
RETURNING record_id;

-- name: ends
-- What a sweep goes over: row numbers. The newest fence says how much came.
SELECT
    (SELECT min(rowid) FROM nebis_record),
    (SELECT max(rowid) FROM nebis_record),
    (SELECT last FROM nebis_fence);

-- name: remove
-- What is over altogether goes at once, whatever it was before. I9: neither this nor the next can see a record that is
-- in progress or in doubt.
DELETE FROM nebis_record
WHERE rowid IN (
    SELECT due.rowid
    FROM nebis_record AS due
    WHERE due.rowid >= :first
        AND due.rowid < :end
        AND ((due.state = 'A' AND due.expires_at <= {now}) OR (due.state IN ('C', 'E') AND due.forget_at <= {now}))
    LIMIT :limit
)
RETURNING record_id;

-- name: expire
UPDATE nebis_record
SET state = 'E',
    outcome = NULL,
    open_effect = NULL
WHERE rowid IN (
    SELECT due.rowid
    FROM nebis_record AS due
    WHERE due.rowid >= :first
        AND due.rowid < :end
        AND due.state = 'C'
        AND due.expires_at <= {now}
    LIMIT :limit
)
RETURNING record_id;

-- name: read_by_id
SELECT {record_columns}, {effect_columns}
FROM nebis_record AS record
LEFT JOIN nebis_effect AS effect ON effect.record_id = record.record_id
WHERE record.record_id = :record_id
ORDER BY effect.ordinal;

-- name: scan
WITH page AS (
    SELECT *
    FROM nebis_record AS found
    WHERE (:states IS NULL OR instr(:states, found.state) > 0)
        AND (:tenant IS NULL OR found.tenant = :tenant)
        AND (:operation IS NULL OR found.operation = :operation)
        AND (:resource_type IS NULL OR found.resource_type = :resource_type)
        AND (:resource_id IS NULL OR found.resource_id = :resource_id)
        AND (NOT :lapsed_only OR (found.state = 'P' AND found.lease_until <= {now}))
        AND (:created_before IS NULL OR found.created_at < :created_before)
        AND (:after_identity IS NULL OR (found.lease_until, found.identity) > (:after_lease, :after_identity))
    ORDER BY found.lease_until, found.identity
    LIMIT :limit
)
SELECT {record_columns}, {effect_columns}
FROM page AS record
LEFT JOIN nebis_effect AS effect ON effect.record_id = record.record_id
ORDER BY record.lease_until, record.identity, effect.ordinal;

-- name: count
SELECT
    state,
    count(*),
    count(*) FILTER (WHERE state = 'P' AND lease_until <= {now}),
    {now} - min(created_at),
    {now} - min(doubt_since)
FROM nebis_record
GROUP BY state;

-- name: clock
SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER);

-- name: has_migration_table
SELECT count(*)
FROM sqlite_schema
WHERE type = 'table'
    AND name = 'nebis_migration';

-- name: create_migration_table
CREATE TABLE IF NOT EXISTS nebis_migration (
    name        TEXT    NOT NULL,
    checksum    TEXT    NOT NULL,
    applied_at  INTEGER NOT NULL,
    -- The oldest code that may go on running on this schema, by its newest migration. NULL: only code that has this one.
    oldest_code TEXT,
    CONSTRAINT migration_name_is_unique PRIMARY KEY (name)
) STRICT;

-- name: read_migrations
SELECT name, checksum, oldest_code
FROM nebis_migration
ORDER BY name;

-- name: write_migration
INSERT INTO nebis_migration (name, checksum, oldest_code, applied_at)
VALUES (:name, :checksum, :oldest_code, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER));

-- name: offer_secret
-- The first one stays for good: every identity is made with it.
INSERT INTO nebis_meta (name, value)
VALUES ('secret', :candidate)
ON CONFLICT (name) DO NOTHING;

-- name: read_secrets
SELECT name, value
FROM nebis_meta
WHERE name = 'secret' OR name GLOB 'secret-check:*';

-- name: admit_secret
INSERT INTO nebis_meta (name, value)
VALUES ('secret-check:' || lower(hex(:check_value)), :check_value)
ON CONFLICT (name) DO NOTHING;

-- name: count_made_with
SELECT count(*)
FROM nebis_record
WHERE fingerprint_version / 256 = :number;

-- name: retire_secret
DELETE FROM nebis_meta
WHERE value = :check_value
    AND name <> 'secret';

-- name: note_worker
INSERT INTO nebis_meta (name, value)
VALUES ('worker-seen', CAST(CAST({now} AS TEXT) AS BLOB))
ON CONFLICT (name) DO UPDATE
SET value = excluded.value;

-- name: read_worker
SELECT value
FROM nebis_meta
WHERE name = 'worker-seen';

-- name: add_tally
INSERT INTO nebis_counter (name, operation, value)
VALUES (:name, :operation, :value)
ON CONFLICT (name, operation) DO UPDATE
SET value = value + excluded.value;

-- name: read_tallies
SELECT name, operation, value
FROM nebis_counter
ORDER BY name, operation;

-- name: note_attempt
-- Of a record that is gone by now there is nothing to note.
INSERT INTO nebis_attempt (record_id, fence, started_at, lease_us, host, pid, how)
SELECT record_id, :fence, :started_at, :lease_us, :host, :pid, :how
FROM nebis_record
WHERE record_id = :record_id
ON CONFLICT (record_id, fence) DO NOTHING;

-- name: trim_attempts
DELETE FROM nebis_attempt
WHERE record_id = :record_id
    AND fence < (
        SELECT newest.fence
        FROM nebis_attempt AS newest
        WHERE newest.record_id = :record_id
        ORDER BY newest.fence DESC
        LIMIT 1 OFFSET :kept - 1
    );

-- name: read_attempts
-- Those of an earlier life of the key followed the record into this one.
SELECT attempt.fence, attempt.started_at, attempt.lease_us, attempt.host, attempt.pid, attempt.how
FROM nebis_attempt AS attempt
JOIN nebis_record AS record ON record.record_id = attempt.record_id
WHERE attempt.record_id = :record_id
    AND attempt.started_at >= record.created_at
ORDER BY attempt.fence;

-- name: keep_late_result
INSERT INTO nebis_late_result (record_id, fence, effect, body, kept_at, forget_at)
VALUES (:record_id, :fence, :effect, :body, {now}, {now} + :keep_us)
ON CONFLICT (record_id, fence, effect) DO NOTHING;

-- name: read_late_results
SELECT fence, effect, body, kept_at
FROM nebis_late_result
WHERE record_id = :record_id
ORDER BY fence, effect;

-- name: forget_late_results
DELETE FROM nebis_late_result
WHERE rowid IN (
    SELECT rowid
    FROM nebis_late_result
    WHERE forget_at <= {now}
    LIMIT :limit
);

-- name: write_audit
INSERT INTO nebis_audit (at, record_id, fence_seen, who, what, reason, answer)
VALUES ({now}, :record_id, :fence_seen, :who, :what, :reason, :answer);

-- name: read_audits
SELECT at, fence_seen, who, what, reason, answer
FROM nebis_audit
WHERE record_id = :record_id
ORDER BY audit_id;
