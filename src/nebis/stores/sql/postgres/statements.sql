-- Every statement of the Postgres store. Plural ones take one array per column and answer one row per member that
-- they changed; who is not answered is read and decided by the state machine.
-- Time is clock_timestamp(), read once per statement: now() stands still inside a transaction (F025).
-- A record is found by `= ANY (ARRAY[member.identity])`, which an index can answer for one member at a time, and nothing
-- else can. Of a plain `=` a planner that believes the table empty, as it does after a VACUUM at such a moment, makes a
-- walk through the whole index for each batch, and keeps to it for as long as the session lasts.
-- Nothing but `claim` ever waits for a row: rows are picked with SKIP LOCKED, so that one open transaction of one
-- user does not delay the others in the batch, and so that no two batches can wait for each other. (Those that end in
-- `_alone` give up after a moment, and completions that end in `_inside` hold their rows before, which comes to the same.)

-- fragment: now
COALESCE(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- fragment: record_columns
record.identity, record.record_id, record.tenant, record.scope, record.operation, record.key, record.fingerprint,
record.fingerprint_version, record.mode, record.state, record.fence, record.nonce, record.lease_until,
record.attempts, record.recoveries, record.is_dirty, record.is_awaited, record.created_at, record.completed_at,
record.expires_at, record.forget_at, record.doubt_since, record.doubt_reason, record.rejection, record.outcome_kind,
record.outcome, record.resource_type, record.resource_id, record.command

-- fragment: effect_columns
effect.name, effect.effect_class, effect.derived_key, effect.digest, effect.is_outstanding, effect.recall_until,
effect.verdict, effect.result

-- fragment: owner_columns
:identity::bytea[], :record_id::uuid[], :fence::bigint[], :nonce::bytea[]

-- fragment: is_owner
-- I2: only the newest fence of this very life writes.
record.identity = ANY (ARRAY[member.identity])
AND record.record_id IS NOT DISTINCT FROM member.record_id
AND record.fence = member.fence
AND record.nonce = member.nonce

-- fragment: found_by_id
-- Most ids begin with the six bytes that their identity begins with, so the primary key finds the few records that one
-- may be of. All others have an index of their own (decision 0012).
CROSS JOIN LATERAL (
    SELECT led.identity
    FROM nebis_record AS led
    WHERE led.record_id = wanted.record_id
        AND led.identity >= substring(uuid_send(wanted.record_id) FOR 6)
        AND led.identity <= substring(uuid_send(wanted.record_id) FOR 6) || decode(repeat('ff', 26), 'hex')
    UNION ALL
    SELECT other.identity
    FROM nebis_record AS other
    WHERE other.record_id = wanted.record_id
        AND substring(uuid_send(other.record_id) FOR 6) <> substring(other.identity FOR 6)
) AS found
JOIN nebis_record AS record ON record.identity = ANY (ARRAY[found.identity]) AND record.record_id = wanted.record_id

-- fragment: first_lives
-- Begins the first life of a key: exactly what `first_life` says.
INSERT INTO nebis_record AS record (
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, expires_at, forget_at, command
)
SELECT
    member.identity, member.record_id, member.tenant, member.scope, member.operation, member.key,
    member.fingerprint, member.fingerprint_version, member.mode, 'P', nextval('nebis_fence'), member.nonce,
    clock.now + member.lease_us, 1, 0, member.mode = 'O', FALSE, clock.now,
    clock.now + member.outcome_us, clock.now + member.outcome_us + member.metadata_us, member.command
FROM clock
CROSS JOIN unnest(
    :identity::bytea[], :record_id::uuid[], :tenant::text[], :scope::text[], :operation::text[], :key::text[],
    :fingerprint::bytea[], :fingerprint_version::integer[], :mode::text[], :nonce::bytea[], :lease_us::bigint[],
    :outcome_us::bigint[], :metadata_us::bigint[], :command::bytea[]
) AS member (
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, nonce, lease_us,
    outcome_us, metadata_us, command
)

-- fragment: claiming
-- Sorted, because it waits for whoever is inserting the same key, and two batches that wait in different orders would
-- wait for ever.
{first_lives}
ORDER BY member.identity
ON CONFLICT (identity) DO NOTHING
RETURNING record.identity, record.fence, record.created_at

-- fragment: claiming_alone
-- The same where the whole statement may fail: a key that somebody begins in this very moment is refused by the index,
-- and nothing has happened. To be told so politely costs every new key a mark in the table, a second one that takes it
-- back, and 48 bytes of the log. Not sorted, because whoever waits does so for a moment only, and then fails too.
-- With OFFSET 0 each key is looked for by itself; else a planner that believes the table empty reads the whole index once.
{first_lives}
WHERE clock.lock_timeout IS NOT NULL
    AND NOT EXISTS (SELECT FROM nebis_record AS twin WHERE twin.identity = ANY (ARRAY[member.identity]) OFFSET 0)
RETURNING record.identity, record.fence, record.created_at

-- name: claim
WITH clock AS MATERIALIZED (SELECT {now} AS now)
{claiming};

-- fragment: claiming_inside
-- The same in a transaction of the application. Two of those that claim the same key must not wait for each other at the
-- unique index: duplicates would fill the pool and hold up strangers (F045). Whoever cannot have the advisory lock at
-- once knows that a twin is at work, and inserts nothing. What is left to wait for is bounded by our own lock timeout.
-- Each part needs a value of the one before, so that none can come too early: the application's timeout is read and the
-- lock taken, our timeout set, the rows inserted and counted, and the application's timeout put back.
WITH theirs AS MATERIALIZED (
    SELECT
        current_setting('lock_timeout') AS lock_timeout,
        (
            SELECT bool_and(pg_try_advisory_xact_lock(member.lock_key))
            FROM unnest(:lock_key::bigint[]) AS member (lock_key)
        ) AS is_free
),
clock AS MATERIALIZED (
    SELECT {now} AS now
    FROM theirs
    WHERE CASE WHEN theirs.is_free THEN set_config('lock_timeout', :lock_milliseconds::text, TRUE) END IS NOT NULL
),
claimed AS (
    {claiming}
)

-- fragment: claimed_inside
theirs.is_free,
CASE WHEN (SELECT count(*) FROM claimed) >= 0 THEN set_config('lock_timeout', theirs.lock_timeout, TRUE) END AS restored,
claimed.identity, claimed.fence, claimed.created_at

-- name: claim_inside
{claiming_inside}
SELECT {claimed_inside}
FROM theirs
LEFT JOIN claimed ON TRUE;

-- fragment: completions
unnest(
    {owner_columns}, :outcome_kind::text[], :outcome::bytea[], :outcome_us::bigint[], :forget_us::bigint[],
    :resource_type::text[], :resource_id::text[]
) AS member (
    identity, record_id, fence, nonce, outcome_kind, outcome, outcome_us, forget_us, resource_type, resource_id
)

-- fragment: may_complete
-- The lease is not asked: a late owner that nobody fenced holds the truth.
{is_owner}
AND record.state IN ('P', 'D')
AND record.open_effect IS NULL
AND (record.rejection IS NULL OR member.outcome_kind = 'R')

-- fragment: completable
held AS MATERIALIZED (
    SELECT member.*, record.is_awaited
    FROM instant
    CROSS JOIN {completions}
    JOIN nebis_record AS record ON {may_complete}
    FOR NO KEY UPDATE OF record SKIP LOCKED
)

-- fragment: completed
state = 'C',
is_dirty = FALSE,
completed_at = instant.now,
expires_at = GREATEST(record.expires_at, instant.now + member.outcome_us),
forget_at = GREATEST(
    record.forget_at, GREATEST(record.expires_at, instant.now + member.outcome_us) + member.forget_us
),
doubt_since = NULL,
doubt_reason = NULL,
rejection = NULL,
outcome_kind = member.outcome_kind,
outcome = member.outcome,
resource_type = COALESCE(member.resource_type, record.resource_type),
resource_id = COALESCE(member.resource_id, record.resource_id),
command = NULL

-- fragment: completing
UPDATE nebis_record AS record
SET is_awaited = FALSE,
    {completed}
FROM held AS member
CROSS JOIN instant
WHERE record.identity = ANY (ARRAY[member.identity])
RETURNING
    record.identity,
    CASE WHEN member.is_awaited THEN pg_notify('nebis', encode(record.identity, 'hex'))::text END AS woken

-- fragment: staging
-- Nothing is staged unless the outcome is stored (I8).
INSERT INTO nebis_outbox (
    created_at, available_at, message_id, topic, content_type, ordering_key, headers, payload
)
SELECT
    instant.now, COALESCE(message.available_at, instant.now), message.message_id, message.topic, message.content_type,
    message.ordering_key, message.headers, message.payload
FROM completed
CROSS JOIN instant
CROSS JOIN unnest(
    :message_id::text[], :topic::text[], :content_type::text[], :ordering_key::text[], :headers::text[],
    :payload::bytea[], :available_at::bigint[]
) WITH ORDINALITY AS message (
    message_id, topic, content_type, ordering_key, headers, payload, available_at, position
)
ORDER BY message.position
ON CONFLICT (message_id) DO NOTHING

-- fragment: instant_of_same
-- Stands still unless the current transaction is the one that was enrolled, and with it all that is written: whoever
-- ended that one inside left another, or none, in which nothing of ours may be committed.
same AS MATERIALIZED (
    SELECT pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM :number::text AS is_same
),
instant AS MATERIALIZED (
    SELECT {now} AS now
    FROM same
    WHERE same.is_same
)

-- name: complete
WITH instant AS MATERIALIZED (SELECT {now} AS now),
{completable}
{completing};

-- fragment: completing_at_once
-- With one search for each row and no lock record in the log. Who waits is woken from here, because only here the row is
-- still as it was. Called for a row that another one then gets, it wakes somebody who looks and waits on.
UPDATE nebis_record AS record
SET is_awaited = CASE
        WHEN record.is_awaited THEN pg_notify('nebis', encode(record.identity, 'hex'))::text IS NULL
        ELSE FALSE
    END,
    {completed}
FROM instant
CROSS JOIN {completions}
WHERE {may_complete}

-- fragment: completing_alone
{completing_at_once}
    AND instant.lock_timeout IS NOT NULL
RETURNING record.identity

-- fragment: completing_inside
-- In a transaction that holds the rows already, because it claimed them or locked them first: nothing can be in the way.
{completing_at_once}
RETURNING record.identity

-- fragment: impatient
set_config('lock_timeout', '2ms', TRUE) AS lock_timeout

-- name: complete_alone
-- The same where nothing else is in the transaction. A row that somebody holds is waited for, in no order, but only for
-- a moment: then nothing has happened, whoever waited for us goes on, and `complete` goes around that row. So no wait is
-- long, and none can be for ever.
WITH instant AS MATERIALIZED (SELECT {now} AS now, {impatient})
{completing_alone};

-- fragment: begun
-- Answers of a batch come in one row, end to end: to send and read a row for each takes both sides longer than to find it.
-- Every identity has 32 bytes and every fence eight, in the same order.
string_agg(claimed.identity, ''::bytea) AS identities,
string_agg(int8send(claimed.fence), ''::bytea) AS fences,
min(claimed.created_at) AS created_at

-- name: claim_all
-- `claim` with its answers in one row.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
claimed AS (
    {claiming}
)
SELECT {begun} FROM claimed;

-- name: claim_all_alone
WITH clock AS MATERIALIZED (SELECT {now} AS now, {impatient}),
claimed AS (
    {claiming_alone}
)
SELECT {begun} FROM claimed;

-- name: complete_all
-- `complete` with its answers in one row.
WITH instant AS MATERIALIZED (SELECT {now} AS now),
{completable},
completed AS (
    {completing}
)
SELECT string_agg(completed.identity, ''::bytea) FROM completed;

-- name: complete_all_alone
WITH instant AS MATERIALIZED (SELECT {now} AS now, {impatient}),
completed AS (
    {completing_alone}
)
SELECT string_agg(completed.identity, ''::bytea) FROM completed;

-- fragment: exchanged
SELECT
    instant.identities,
    instant.fences,
    instant.created_at,
    (SELECT string_agg(completed.identity, ''::bytea) FROM completed)
FROM instant

-- name: exchange
-- Claims and completions in one trip and one commit. The completions need what the claims left, so that they come after
-- them: whoever still waits for a key holds no row that another batch could wait for.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
claimed AS (
    {claiming}
),
instant AS MATERIALIZED (
    SELECT (SELECT clock.now FROM clock), {begun}
    FROM claimed
),
{done_:completable},
completed AS (
    {completing}
)
{exchanged};

-- name: exchange_alone
-- The same as `complete_alone` is to `complete`.
WITH clock AS MATERIALIZED (SELECT {now} AS now, {impatient}),
claimed AS (
    {claiming_alone}
),
instant AS MATERIALIZED (
    SELECT (SELECT clock.now FROM clock), (SELECT clock.lock_timeout FROM clock), {begun}
    FROM claimed
),
completed AS (
    {done_:completing_alone}
)
{exchanged};

-- name: complete_inside
-- The same in a transaction of the application, if it is still the same. Says so, whether or not anything is completed.
WITH {instant_of_same},
completed AS (
    {completing_inside}
)
SELECT same.is_same, completed.identity
FROM same
LEFT JOIN completed ON TRUE;

-- name: complete_and_stage
-- The outcome and what is to be published in one trip.
WITH instant AS MATERIALIZED (SELECT {now} AS now),
{completable},
completed AS (
    {completing}
),
staged AS (
    {staging}
)
SELECT completed.identity, completed.woken FROM completed;

-- name: complete_and_stage_inside
WITH {instant_of_same},
completed AS (
    {completing_inside}
),
staged AS (
    {staging}
)
SELECT same.is_same, completed.identity
FROM same
LEFT JOIN completed ON TRUE;

-- name: renew
WITH clock AS MATERIALIZED (SELECT {now} AS now),
held AS MATERIALIZED (
    SELECT member.*
    FROM unnest({owner_columns}, :lease_us::bigint[]) AS member (identity, record_id, fence, nonce, lease_us)
    JOIN nebis_record AS record ON {is_owner}
    WHERE record.state = 'P'
    FOR NO KEY UPDATE OF record SKIP LOCKED
)
UPDATE nebis_record AS record
SET lease_until = GREATEST(record.lease_until, clock.now + held.lease_us)
FROM held
CROSS JOIN clock
WHERE record.identity = ANY (ARRAY[held.identity])
RETURNING record.identity;

-- name: release
-- Never when dirty (F076).
WITH held AS MATERIALIZED (
    SELECT member.identity, record.is_awaited
    FROM unnest({owner_columns}) AS member (identity, record_id, fence, nonce)
    JOIN nebis_record AS record ON {is_owner}
    WHERE record.state = 'P'
        AND NOT record.is_dirty
        AND record.rejection IS NULL
    FOR NO KEY UPDATE OF record SKIP LOCKED
)
UPDATE nebis_record AS record
SET state = 'A',
    is_awaited = FALSE
FROM held
WHERE record.identity = ANY (ARRAY[held.identity])
RETURNING
    record.identity,
    CASE WHEN held.is_awaited THEN pg_notify('nebis', encode(record.identity, 'hex'))::text END AS woken;

-- name: read
-- One row per member and effect; a member without a record still gets a row, with the clock on it. The last column
-- stands in for a fence where nothing is locked yet: a decision that would use it is taken again under the lock.
SELECT {record_columns}, {effect_columns}, member.identity, clock.now, COALESCE(record.fence, 0) + 1
FROM (SELECT {now} AS now OFFSET 0) AS clock
CROSS JOIN unnest(:identity::bytea[]) AS member (identity)
LEFT JOIN nebis_record AS record ON record.identity = ANY (ARRAY[member.identity])
LEFT JOIN nebis_effect AS effect ON effect.record_id = ANY (ARRAY[record.record_id])
ORDER BY member.identity, effect.ordinal;

-- name: read_ended
-- All that a replay tells, of those members that are completed. Who is not answered is read whole, and so is a record with a
-- letter that nobody knows, to be refused there.
SELECT
    record.identity, record.record_id, record.operation, record.fingerprint_version, record.fingerprint,
    record.outcome_kind, record.outcome, record.expires_at, clock.now
FROM (SELECT {now} AS now OFFSET 0) AS clock
CROSS JOIN unnest(:identity::bytea[]) AS member (identity)
JOIN nebis_record AS record ON record.identity = ANY (ARRAY[member.identity])
WHERE record.state = 'C'
    AND record.mode IN ('L', 'D', 'O');

-- name: lock
-- Locks what can be locked at once and draws a fence for each: after the lock, so that it is higher than any that
-- the record ever had (I10). Effects are read by the next statement, whose snapshot is newer than the lock.
WITH held AS MATERIALIZED (
    SELECT record.identity
    FROM unnest(:identity::bytea[]) AS member (identity)
    JOIN nebis_record AS record ON record.identity = ANY (ARRAY[member.identity])
    FOR NO KEY UPDATE OF record SKIP LOCKED
)
SELECT held.identity, nextval('nebis_fence')
FROM held;

-- name: probe
-- Inserts a record that is rolled back at once: it waits for whoever is inserting the same key, as long as the lock
-- timeout allows. Only so can a transaction be noticed whose rows nobody sees yet.
INSERT INTO nebis_record (
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, expires_at, forget_at
)
VALUES (
    :identity::bytea, gen_random_uuid(), '', '', '', '', :identity::bytea, 0, 'L', 'P', 1, substring(:identity::bytea, 1, 16),
    0, 1, 0, FALSE, FALSE, 0, 0, 0
)
ON CONFLICT (identity) DO NOTHING
RETURNING identity;

-- name: save
-- Writes a whole record back, under the lock. The old life and fence are guarded all the same.
UPDATE nebis_record AS record
SET record_id = member.record_id,
    tenant = member.tenant,
    scope = member.scope,
    operation = member.operation,
    key = member.key,
    fingerprint = member.fingerprint,
    fingerprint_version = member.fingerprint_version,
    mode = member.mode,
    state = member.state,
    fence = member.fence,
    nonce = member.nonce,
    lease_until = member.lease_until,
    attempts = member.attempts,
    recoveries = member.recoveries,
    is_dirty = member.is_dirty,
    is_awaited = member.is_awaited,
    created_at = member.created_at,
    completed_at = member.completed_at,
    expires_at = member.expires_at,
    forget_at = member.forget_at,
    doubt_since = member.doubt_since,
    doubt_reason = member.doubt_reason,
    rejection = member.rejection,
    outcome_kind = member.outcome_kind,
    outcome = member.outcome,
    resource_type = member.resource_type,
    resource_id = member.resource_id,
    command = member.command,
    open_effect = member.open_effect
FROM unnest(
    :identity::bytea[], :old_record_id::uuid[], :old_fence::bigint[], :record_id::uuid[], :tenant::text[],
    :scope::text[], :operation::text[], :key::text[], :fingerprint::bytea[], :fingerprint_version::integer[],
    :mode::text[], :state::text[], :fence::bigint[], :nonce::bytea[], :lease_until::bigint[], :attempts::integer[],
    :recoveries::integer[], :is_dirty::boolean[], :is_awaited::boolean[], :created_at::bigint[],
    :completed_at::bigint[], :expires_at::bigint[], :forget_at::bigint[], :doubt_since::bigint[],
    :doubt_reason::text[], :rejection::bytea[], :outcome_kind::text[], :outcome::bytea[], :resource_type::text[],
    :resource_id::text[], :command::bytea[], :open_effect::text[]
) AS member (
    identity, old_record_id, old_fence, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version,
    mode, state, fence, nonce, lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, completed_at,
    expires_at, forget_at, doubt_since, doubt_reason, rejection, outcome_kind, outcome, resource_type, resource_id,
    command, open_effect
)
WHERE record.identity = ANY (ARRAY[member.identity])
    AND record.record_id IS NOT DISTINCT FROM member.old_record_id
    AND record.fence = member.old_fence
RETURNING record.identity;

-- name: drop_record
DELETE FROM nebis_record AS record
USING unnest(:identity::bytea[], :old_record_id::uuid[], :old_fence::bigint[])
    AS member (identity, old_record_id, old_fence)
WHERE record.identity = ANY (ARRAY[member.identity])
    AND record.record_id IS NOT DISTINCT FROM member.old_record_id
    AND record.fence = member.old_fence
RETURNING record.identity;

-- name: save_effect
INSERT INTO nebis_effect (
    record_id, ordinal, name, effect_class, derived_key, digest, is_outstanding, recall_until, verdict, result
)
SELECT member.*
FROM unnest(
    :record_id::uuid[], :ordinal::integer[], :name::text[], :effect_class::text[], :derived_key::text[],
    :digest::bytea[], :is_outstanding::boolean[], :recall_until::bigint[], :verdict::text[], :result::bytea[]
) AS member (
    record_id, ordinal, name, effect_class, derived_key, digest, is_outstanding, recall_until, verdict, result
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
DELETE FROM nebis_effect AS effect
USING unnest(:record_id::uuid[], :name::text[]) AS member (record_id, name)
WHERE effect.record_id = ANY (ARRAY[member.record_id])
    AND effect.name = ANY (ARRAY[member.name])
RETURNING effect.record_id;

-- name: wake
-- A hint for those who wait in other processes, delivered when the transaction commits.
SELECT pg_notify('nebis', encode(member.identity, 'hex'))::text
FROM unnest(:identity::bytea[]) AS member (identity);

-- fragment: is_ahead
-- In the blocks that are looked at, from the first one on and before the end, and one of those whose turn it is.
record.ctid >= format('(%s,0)', :first::bigint)::tid
AND record.fence % :turns::bigint = :turn::bigint

-- fragment: end_place
format('(%s,0)', :end::bigint)::tid

-- fragment: is_due
-- I9: a record that is in progress or in doubt is not seen.
record.state IN ('C', 'A', 'E')
AND CASE record.state WHEN 'E' THEN record.forget_at ELSE record.expires_at END <= clock.now
AND {is_ahead}
AND record.ctid < {end_place}

-- fragment: expiring
-- What is left is a tombstone.
UPDATE nebis_record AS record
SET state = 'E',
    outcome = NULL,
    open_effect = NULL

-- fragment: dropping
-- Results of effects are as sensitive as the outcome. Records that are deleted take theirs with them.
DELETE FROM nebis_effect AS effect
USING expired
WHERE effect.record_id = ANY (ARRAY[expired.record_id])

-- fragment: table_and_fence
pg_relation_size('nebis_record') / current_setting('block_size')::bigint,
COALESCE(pg_sequence_last_value('nebis_fence'), 0)

-- name: sweep
-- One look at a range of the table's blocks: no index tells what is due, as it would cost every completion. Outcomes
-- past their window become tombstones; what is over altogether goes at once, whatever it was before. Where the limit
-- was reached, the answer says in which block.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT record.ctid, record.state = 'A' OR record.forget_at <= clock.now AS is_over
    FROM nebis_record AS record
    CROSS JOIN clock
    WHERE {is_due}
    LIMIT :limit::bigint
    FOR UPDATE OF record SKIP LOCKED
),
-- Under its lock a row stays where it is, so that it is found without an index.
removed AS (
    DELETE FROM nebis_record AS record
    USING due
    WHERE record.ctid = due.ctid
        AND due.is_over
),
expired AS (
    {expiring}
    FROM due
    WHERE record.ctid = due.ctid
        AND NOT due.is_over
    RETURNING record.record_id
),
dropped AS (
    {dropping}
)
SELECT
    count(*),
    CASE WHEN count(*) >= :limit::bigint THEN (max(due.ctid)::text::point)[0]::bigint END,
    {table_and_fence}
FROM due;

-- name: sweep_alone
-- The same without a lock on each row before it is changed, and without a list of them: a fifth less work. A row that
-- somebody holds is waited for, but only for a moment, as `complete_alone` does: then `sweep` goes around it. Whoever
-- is changed meanwhile is looked at again, and all that makes a row due is asked of the row itself.
WITH clock AS MATERIALIZED (SELECT {now} AS now, set_config('lock_timeout', '2ms', TRUE) AS lock_timeout),
-- Where the limit is reached.
stopped AS MATERIALIZED (
    SELECT record.ctid
    FROM nebis_record AS record
    CROSS JOIN clock
    WHERE {is_due}
    LIMIT 1 OFFSET :limit::bigint - 1
),
bounds AS MATERIALIZED (
    SELECT clock.now, COALESCE((SELECT stopped.ctid FROM stopped), {end_place}) AS last
    FROM clock
    WHERE clock.lock_timeout IS NOT NULL
),
removed AS (
    DELETE FROM nebis_record AS record
    WHERE {is_ahead}
        AND record.ctid <= (SELECT bounds.last FROM bounds)
        AND record.state IN ('C', 'A', 'E')
        AND CASE record.state WHEN 'A' THEN record.expires_at ELSE record.forget_at END <= (SELECT bounds.now FROM bounds)
    RETURNING record.record_id
),
expired AS (
    {expiring}
    WHERE {is_ahead}
        AND record.ctid <= (SELECT bounds.last FROM bounds)
        AND record.state = 'C'
        AND record.expires_at <= (SELECT bounds.now FROM bounds)
        AND record.forget_at > (SELECT bounds.now FROM bounds)
    RETURNING record.record_id
),
dropped AS (
    {dropping}
)
SELECT
    (SELECT count(*) FROM removed) + (SELECT count(*) FROM expired),
    (SELECT (stopped.ctid::text::point)[0]::bigint FROM stopped),
    {table_and_fence};

-- name: read_by_id
SELECT {record_columns}, {effect_columns}
FROM (SELECT :record_id::uuid AS record_id OFFSET 0) AS wanted
{found_by_id}
LEFT JOIN nebis_effect AS effect ON effect.record_id = ANY (ARRAY[record.record_id])
ORDER BY effect.ordinal;

-- name: scan
WITH page AS MATERIALIZED (
    SELECT record.*
    FROM nebis_record AS record
    CROSS JOIN (SELECT {now} AS now OFFSET 0) AS clock
    WHERE (:states::text IS NULL OR strpos(:states::text, record.state) > 0)
        AND (:tenant::text IS NULL OR record.tenant = :tenant::text)
        AND (:operation::text IS NULL OR record.operation = :operation::text)
        AND (:resource_type::text IS NULL OR record.resource_type = :resource_type::text)
        AND (:resource_id::text IS NULL OR record.resource_id = :resource_id::text)
        AND (NOT :lapsed_only::boolean OR (record.state = 'P' AND record.lease_until <= clock.now))
        AND (:created_before::bigint IS NULL OR record.created_at < :created_before::bigint)
        AND (
            :after_identity::bytea IS NULL
            OR (record.lease_until, record.identity) > (:after_lease::bigint, :after_identity::bytea)
        )
    ORDER BY record.lease_until, record.identity
    LIMIT :limit::bigint
)
SELECT {record_columns}, {effect_columns}
FROM page AS record
LEFT JOIN nebis_effect AS effect ON effect.record_id = ANY (ARRAY[record.record_id])
ORDER BY record.lease_until, record.identity, effect.ordinal;

-- name: count
SELECT
    record.state,
    count(*),
    count(*) FILTER (WHERE record.state = 'P' AND record.lease_until <= clock.now),
    max(clock.now) - min(record.created_at),
    max(clock.now) - min(record.doubt_since)
FROM (SELECT {now} AS now OFFSET 0) AS clock
CROSS JOIN nebis_record AS record
GROUP BY record.state;

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: lock_schema
-- Held until the transaction ends; the number is arbitrary, but must never change: every version of Nebis that starts
-- at the same moment has to wait for the same lock.
SELECT pg_advisory_xact_lock(5279152690271)::text;

-- name: limit_lock_wait
-- A change of a table waits for every transaction that uses it, and all that come later queue behind the change (F115).
-- So it waits for less than any of them would, and comes back later instead.
SET LOCAL lock_timeout = '100ms';

-- name: pause
SELECT pg_sleep(:seconds::float8)::text;

-- name: begin_alone
-- For what cannot run in a transaction. A lock of the session keeps others out; it ends with the session at the latest.
-- Nobody queues behind such a statement, so it may wait for as long as it takes.
SELECT
    free.is_ours,
    CASE WHEN free.is_ours THEN set_config('lock_timeout', '0', false) END,
    CASE WHEN free.is_ours THEN set_config('statement_timeout', '0', false) END
FROM (SELECT pg_try_advisory_lock(5279152690272) AS is_ours OFFSET 0) AS free;

-- name: end_alone
SELECT
    pg_advisory_unlock(5279152690272),
    set_config('lock_timeout', (SELECT reset_val FROM pg_settings WHERE name = 'lock_timeout'), false),
    set_config('statement_timeout', (SELECT reset_val FROM pg_settings WHERE name = 'statement_timeout'), false);

-- name: has_migration_table
-- A session remembers that a name did not exist, and waiting for an advisory lock does not make it look again. Reading a
-- table does, even if it is only the catalogue.
SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = to_regclass('nebis_migration'));

-- name: create_migration_table
CREATE TABLE IF NOT EXISTS nebis_migration (
    name        text   NOT NULL,
    checksum    text   NOT NULL,
    applied_at  bigint NOT NULL,
    -- The oldest code that may go on running on this schema, by its newest migration. NULL: only code that has this one.
    oldest_code text,
    CONSTRAINT migration_name_is_unique PRIMARY KEY (name)
);

-- name: read_migrations
SELECT name, checksum, oldest_code
FROM nebis_migration
ORDER BY name;

-- name: write_migration
INSERT INTO nebis_migration (name, checksum, oldest_code, applied_at)
VALUES (
    :name::text,
    :checksum::text,
    :oldest_code::text,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
);

-- name: offer_secret
-- The first one stays for good: every identity is made with it.
INSERT INTO nebis_meta (name, value)
VALUES ('secret', :candidate::bytea)
ON CONFLICT (name) DO NOTHING;

-- name: read_secrets
SELECT name, value
FROM nebis_meta
WHERE name = 'secret' OR starts_with(name, 'secret-check:');

-- name: admit_secret
INSERT INTO nebis_meta (name, value)
VALUES ('secret-check:' || encode(:check_value::bytea, 'hex'), :check_value::bytea)
ON CONFLICT (name) DO NOTHING;

-- name: count_made_with
SELECT count(*)
FROM nebis_record
WHERE fingerprint_version / 256 = :number::integer;

-- name: retire_secret
DELETE FROM nebis_meta
WHERE value = :check_value::bytea
    AND name <> 'secret';

-- name: note_worker
INSERT INTO nebis_meta (name, value)
SELECT 'worker-seen', convert_to(clock.now::text, 'UTF8')
FROM (SELECT {now} AS now OFFSET 0) AS clock
ON CONFLICT (name) DO UPDATE
SET value = EXCLUDED.value;

-- name: read_worker
SELECT value
FROM nebis_meta
WHERE name = 'worker-seen';

-- name: add_tally
-- Sorted by their key, so that two processes that flush at once wait in one order.
INSERT INTO nebis_counter AS counter (name, operation, value)
SELECT member.name, member.operation, member.value
FROM unnest(:name::text[], :operation::text[], :value::bigint[]) AS member (name, operation, value)
ORDER BY member.name, member.operation
ON CONFLICT (name, operation) DO UPDATE
SET value = counter.value + EXCLUDED.value;

-- name: read_tallies
SELECT name, operation, value
FROM nebis_counter
ORDER BY name, operation;

-- name: note_attempt
-- Of a record that is gone by now, or going, there is nothing to note: the lock is what a foreign key would take.
INSERT INTO nebis_attempt (record_id, fence, started_at, lease_us, host, pid, how)
SELECT
    wanted.record_id, wanted.fence, wanted.started_at, wanted.lease_us, wanted.host, wanted.pid, wanted.how
FROM unnest(
    :record_id::uuid[], :fence::bigint[], :started_at::bigint[], :lease_us::bigint[], :host::text[], :pid::integer[],
    :how::text[]
) AS wanted (record_id, fence, started_at, lease_us, host, pid, how)
{found_by_id}
FOR KEY SHARE OF record SKIP LOCKED
ON CONFLICT (record_id, fence) DO NOTHING;

-- name: trim_attempts
DELETE FROM nebis_attempt AS attempt
USING unnest(:record_id::uuid[], :kept::bigint[]) AS member (record_id, kept)
WHERE attempt.record_id = member.record_id
    AND attempt.fence < (
        SELECT newest.fence
        FROM nebis_attempt AS newest
        WHERE newest.record_id = member.record_id
        ORDER BY newest.fence DESC
        LIMIT 1 OFFSET member.kept - 1
    );

-- name: read_attempts
-- Older code let those of an earlier life of the key follow the record into this one.
SELECT attempt.fence, attempt.started_at, attempt.lease_us, attempt.host, attempt.pid, attempt.how
FROM (SELECT :record_id::uuid AS record_id OFFSET 0) AS wanted
{found_by_id}
JOIN nebis_attempt AS attempt ON attempt.record_id = ANY (ARRAY[wanted.record_id])
WHERE attempt.started_at >= record.created_at
ORDER BY attempt.fence;

-- name: keep_late_result
INSERT INTO nebis_late_result (record_id, fence, effect, body, kept_at, forget_at)
SELECT :record_id::uuid, :fence::bigint, :effect::text, :body::bytea, clock.now, clock.now + :keep_us::bigint
FROM (SELECT {now} AS now OFFSET 0) AS clock
ON CONFLICT (record_id, fence, effect) DO NOTHING;

-- name: read_late_results
SELECT fence, effect, body, kept_at
FROM nebis_late_result
WHERE record_id = :record_id::uuid
ORDER BY fence, effect;

-- name: forget_late_results
WITH due AS MATERIALIZED (
    SELECT late.record_id, late.fence, late.effect
    FROM nebis_late_result AS late
    CROSS JOIN (SELECT {now} AS now OFFSET 0) AS clock
    WHERE late.forget_at <= clock.now
    LIMIT :limit::bigint
    FOR UPDATE OF late SKIP LOCKED
)
DELETE FROM nebis_late_result AS late
USING due
WHERE late.record_id = due.record_id
    AND late.fence = due.fence
    AND late.effect = due.effect;

-- name: write_audit
INSERT INTO nebis_audit (at, record_id, fence_seen, who, what, reason, answer)
VALUES (
    {now}, :record_id::uuid, :fence_seen::bigint, :who::text, :what::text, :reason::text, :answer::text
);

-- name: read_audits
SELECT at, fence_seen, who, what, reason, answer
FROM nebis_audit
WHERE record_id = :record_id::uuid
ORDER BY audit_id;
