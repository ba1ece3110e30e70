-- What a transaction of the application says for itself, beside the store's own statements, whose fragments it repeats.

-- fragment: place
-- Which tables of which database of which running server.
format(
    '%s of %s since %s',
    coalesce(to_regclass('nebis_record')::oid, 0), current_database(), extract(epoch FROM pg_postmaster_start_time())
)

-- fragment: recognised
-- Takes the transaction's number, by which it is recognised later: nobody can end it and begin another unnoticed.
pg_current_xact_id()::text AS number,
current_setting('transaction_isolation') AS isolation,
current_setting('transaction_read_only') = 'on' AS is_read_only

-- fragment: secured
-- Makes it durable, and bounds how long a process that was stopped may keep the record from its successor.
CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable,
CASE
    WHEN current_setting('idle_in_transaction_session_timeout')::interval
        NOT BETWEEN '1 ms' AND (:idle_milliseconds::text || ' ms')::interval
        THEN set_config('idle_in_transaction_session_timeout', :idle_milliseconds::text, true)
END AS bounded

-- fragment: echoed
-- A value of each type that our statements use, there and back: a codec of the application's must not change them.
(:bytea::bytea[])[1] AS of_bytea,
(:uuid::uuid[])[1] AS of_uuid,
(:text::text[])[1] AS of_text,
(:bigint::bigint[])[1] AS of_bigint,
(:integer::integer[])[1] AS of_integer,
(:smallint::smallint[])[1] AS of_smallint,
(:boolean::boolean[])[1] AS of_boolean

-- name: enrol
SELECT {recognised}, {place} AS address, {secured}, {echoed};

-- name: claim_and_enrol
-- Both in one trip, on a connection of ours, of which nobody has to ask where it leads. Where something is found to be
-- wrong, nothing of the claim stays either.
{claiming_inside}
SELECT {claimed_inside}, {recognised}, NULL::text AS address, {secured}, {echoed}
FROM theirs
LEFT JOIN claimed ON TRUE;

-- name: claim_and_enrol_plain
-- The same on a connection whose codecs are known to be the driver's own.
{claiming_inside}
SELECT {claimed_inside}, {recognised}, NULL::text AS address, {secured}
FROM theirs
LEFT JOIN claimed ON TRUE;

-- fragment: or_fail
-- Fails unless the outcome was stored, and says nothing otherwise: what is sent behind it in the same trip is a COMMIT,
-- which the server skips then. No error of PostgreSQL's is ours, so it is one that nothing else here can make: 2201G if
-- the transaction is not the same any more, 2201F if the record is not.
SELECT
FROM same
LEFT JOIN completed ON TRUE
WHERE CASE
    WHEN NOT same.is_same THEN width_bucket(0, 0, 1, same.is_same::integer) IS NULL
    WHEN completed.identity IS NULL THEN sqrt(-same.is_same::integer) IS NULL
    ELSE FALSE
END

-- name: complete_or_fail
WITH {instant_of_same},
completed AS (
    {completing_inside}
)
{or_fail};

-- name: complete_and_stage_or_fail
WITH {instant_of_same},
completed AS (
    {completing_inside}
),
staged AS (
    {staging}
)
{or_fail};

-- name: address
SELECT {place};

-- name: current
SELECT pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM :number::text;

-- name: fate
SELECT pg_xact_status(:number::text::xid8);
