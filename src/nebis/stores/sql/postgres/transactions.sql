-- What a transaction of the application says for itself, beside the store's own statements.

-- fragment: place
-- Which tables of which database of which running server.
format(
    '%s of %s since %s',
    coalesce(to_regclass('nebis_record')::oid, 0), current_database(), extract(epoch FROM pg_postmaster_start_time())
)

-- name: enrol
-- Takes the transaction's number, by which it is recognised later: nobody can end it and begin another unnoticed.
-- Makes it durable, and bounds how long a process that was stopped may keep the record from its successor. Sends a value
-- of each type that our statements use there and back: a codec of the application's must not change them.
SELECT
    pg_current_xact_id()::text,
    current_setting('transaction_isolation'),
    current_setting('transaction_read_only') = 'on',
    {place},
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END,
    CASE
        WHEN current_setting('idle_in_transaction_session_timeout')::interval
            NOT BETWEEN '1 ms' AND (:idle_milliseconds::text || ' ms')::interval
            THEN set_config('idle_in_transaction_session_timeout', :idle_milliseconds::text, true)
    END,
    (:bytea::bytea[])[1],
    (:uuid::uuid[])[1],
    (:text::text[])[1],
    (:bigint::bigint[])[1],
    (:integer::integer[])[1],
    (:smallint::smallint[])[1],
    (:boolean::boolean[])[1];

-- name: address
SELECT {place};

-- name: current
SELECT pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM :number::text;

-- name: fate
SELECT pg_xact_status(:number::text::xid8);
