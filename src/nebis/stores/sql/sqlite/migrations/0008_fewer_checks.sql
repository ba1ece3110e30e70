-- Nothing to change here: SQLite compiles a CHECK when a statement is prepared, and ours stay prepared. The number is
-- taken, so that both databases have the same history.
-- oldest-code: 0001_record

-- name: nothing
SELECT 1;
