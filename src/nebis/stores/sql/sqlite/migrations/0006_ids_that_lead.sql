-- Nothing to change here: a file keeps its index over ids, which grows at one end, and could lose it only by being
-- written anew. The number is taken, so that both databases have the same history.
-- oldest-code: 0001_record

-- name: nothing
SELECT 1;
