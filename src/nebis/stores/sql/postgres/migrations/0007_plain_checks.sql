-- Nothing to change here: PostgreSQL checks a list as it stands. The number is taken, so that both databases have the
-- same history.
-- oldest-code: 0001_record

-- name: nothing
SELECT 1;
