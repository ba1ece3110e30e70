-- The same refusals in fewer words. PostgreSQL reads and compiles every CHECK of a table anew for each statement that
-- writes to it, at a price that follows the length of the stored expressions: a batch of one spent a third of the
-- server's time on them. Their number hardly matters, so those that are short already stay, each with its name.
-- NOT VALID, since every row was checked by the old ones, which say the same: reading a large table under this lock
-- would stop requests. Who wants the catalogue to say so runs VALIDATE CONSTRAINT later, while requests go on.
-- oldest-code: 0001_record

-- name: fewer_checks
-- An array in one literal is one node; IN (...) is one for each of its values.
-- The shape is a word: the state, then t or f for each of the seven that follow it. Only the state can be longer or
-- shorter than one letter, so no other row makes the same word. What most rows are comes first.
-- I3: an outcome is present exactly when the state is completed; a tombstone still says how it ended.
-- I9: what is opaque is dirty from its claim, and only a clean record is given back or started over.
ALTER TABLE nebis_record
    DROP CONSTRAINT IF EXISTS record_state_is_known,
    DROP CONSTRAINT IF EXISTS record_outcome_iff_completed,
    DROP CONSTRAINT IF EXISTS record_outcome_kind_iff_ended,
    DROP CONSTRAINT IF EXISTS record_completed_at_iff_ended,
    DROP CONSTRAINT IF EXISTS record_doubt_since_iff_in_doubt,
    DROP CONSTRAINT IF EXISTS record_doubt_reason_iff_in_doubt,
    DROP CONSTRAINT IF EXISTS record_awaited_only_while_running,
    DROP CONSTRAINT IF EXISTS record_dirty_fits_state,
    DROP CONSTRAINT IF EXISTS record_mode_is_known,
    DROP CONSTRAINT IF EXISTS record_outcome_kind_is_known,
    DROP CONSTRAINT IF EXISTS record_ended_keeps_no_work,
    ADD CONSTRAINT record_fits_its_state CHECK (
        concat(
            state,
            outcome IS NOT NULL, outcome_kind IS NOT NULL, completed_at IS NOT NULL,
            doubt_since IS NOT NULL, doubt_reason IS NOT NULL,
            is_dirty, is_awaited
        ) = ANY ('{Pfffffff,Ctttffff,Pffffftf,Pfffffft,Pffffftt,Afffffff,Dffftttf,Efttffff}')
    ) NOT VALID,
    ADD CONSTRAINT record_opaque_is_dirty CHECK (is_dirty OR mode <> 'O' OR state <> 'P') NOT VALID,
    ADD CONSTRAINT record_mode_is_known CHECK (mode = ANY ('{L,D,O}')) NOT VALID,
    ADD CONSTRAINT record_outcome_kind_is_known CHECK (outcome_kind = ANY ('{S,R,U,N}')) NOT VALID,
    ADD CONSTRAINT record_ended_keeps_no_work CHECK (
        completed_at IS NULL OR COALESCE(command, rejection) IS NULL
    ) NOT VALID;
