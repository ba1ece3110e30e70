-- Public ids that begin as the identity of their record does, so that the primary key finds a record by its id too, and
-- most records need no second index. Code that draws other ids may go on: the records that it makes have an index.
-- On a large table, build that index beforehand while requests go on: the statement below, with CONCURRENTLY in it.
-- oldest-code: 0001_record

-- name: other_id_index
-- Empties as older records go: whoever draws ids that lead to their identity adds nothing to it.
CREATE UNIQUE INDEX IF NOT EXISTS "nebis_record_other_id" ON nebis_record (record_id)
WHERE substring(uuid_send(record_id) FOR 6) <> substring(identity FOR 6);

-- name: effect_goes_otherwise
-- A foreign key would need an index over all ids. What it did is done by the two triggers below, whoever writes.
ALTER TABLE nebis_effect DROP CONSTRAINT effect_belongs_to_record;

-- name: attempt_goes_otherwise
ALTER TABLE nebis_attempt DROP CONSTRAINT attempt_belongs_to_record;

-- name: id_index_is_dropped
ALTER TABLE nebis_record DROP CONSTRAINT record_id_is_never_reused;

-- name: forget_details
-- Finds its tables also for somebody who deletes with another search path.
CREATE FUNCTION nebis_forget_details() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM nebis_effect AS effect USING gone WHERE effect.record_id = gone.record_id;
    DELETE FROM nebis_attempt AS attempt USING gone WHERE attempt.record_id = gone.record_id;
    RETURN NULL;
END
$$;

-- name: details_go_with_their_record
-- Also when code that does not know those tables removes it. For a whole statement at once, which costs a fraction of
-- what foreign keys cost for each record.
CREATE TRIGGER "nebis_record_is_gone"
AFTER DELETE ON nebis_record
REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT
EXECUTE FUNCTION nebis_forget_details();

-- name: forget_former_life
CREATE FUNCTION nebis_forget_former_life() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM nebis_effect AS effect WHERE effect.record_id = OLD.record_id;
    DELETE FROM nebis_attempt AS attempt WHERE attempt.record_id = OLD.record_id;
    RETURN NULL;
END
$$;

-- name: details_go_with_their_life
-- A key that begins a new life gets a new id.
CREATE TRIGGER "nebis_record_begins_again"
AFTER UPDATE OF record_id ON nebis_record
FOR EACH ROW
WHEN (OLD.record_id <> NEW.record_id)
EXECUTE FUNCTION nebis_forget_former_life();
