"""Bad habits of an engine, a resolver or a store, each of which must be found out."""

from __future__ import annotations

from enum import StrEnum


class Habit(StrEnum):
    """One planted mistake outside the state machine."""

    CALLED_AGAIN_AFTER_TIMEOUT = "an effect without memory is called again after a timeout"
    RELEASED_AFTER_TIMEOUT = "the key is given back after a timeout"
    TIMEOUT_IS_A_REJECTION = "a timeout is stored as a definite rejection"
    TIMEOUT_IS_NOTHING = "a timeout is reported as a call that never left"
    FENCED_CALLED_AGAIN = "a fenced effect is called again by the same owner"
    KEY_PER_ATTEMPT = "every attempt derives its own key"
    ACK_BEFORE_COMPLETE = "the client is answered before the outcome is stored"
    LOSER_ACKS_ITS_OWN = "a fenced attempt answers with its own bytes"
    COMMIT_RUN_AGAIN_BLINDLY = "a transaction is run again without reading the record"
    READ_AGAIN_IGNORES_LIFE = "reading again does not compare the record id"
    UNDO_SKIPPED = "undos are skipped after turning back"
    NO_DEADLINE = "nothing ends a doubt by itself"
    IDENTITY_WITHOUT_TENANT = "the identity leaves out the tenant"
    CLAIM_OUTLIVES_RETENTION = "a copy of a claim arrives after the retention of its own record"
    FENCES_START_OVER = "fences are counted per record and start over"
