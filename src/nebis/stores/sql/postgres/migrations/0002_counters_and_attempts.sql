-- What happened, for people: how often, and who tried. Nothing here decides anything, so it may be emptied at any time.
-- oldest-code: 0001_record

-- name: counter_table
-- One row for each kind of event and operation, counted in place: half of every page is kept free for it.
CREATE TABLE nebis_counter (
    value     bigint NOT NULL,
    name      text   NOT NULL,
    operation text   NOT NULL,
    CONSTRAINT counter_name_is_unique PRIMARY KEY (name, operation),
    CONSTRAINT counter_only_grows CHECK (value >= 0)
) WITH (fillfactor = 50);

-- name: attempt_table
-- Its rows leave with their record, also when code that does not know this table purges it.
CREATE TABLE nebis_attempt (
    fence      bigint  NOT NULL,
    started_at bigint  NOT NULL,
    record_id  uuid    NOT NULL,
    pid        integer NOT NULL,
    host       text    NOT NULL,
    how        text    NOT NULL,
    CONSTRAINT attempt_fence_is_unique PRIMARY KEY (record_id, fence),
    CONSTRAINT attempt_belongs_to_record FOREIGN KEY (record_id) REFERENCES nebis_record (record_id) ON DELETE CASCADE,
    CONSTRAINT attempt_fence_was_drawn CHECK (fence >= 1),
    CONSTRAINT attempt_how_is_known CHECK (how IN ('new', 'available', 'taken_over', 'resumed', 'run_again'))
);
