"""How the model's messages are spelled as verbs of the core, and names as the bytes that the core compares."""

from __future__ import annotations

from uuid import UUID

from nebis.core.record import (
    EffectClass,
    Fence,
    Nonce,
    Outcome,
    OutcomeKind,
    Ownership,
    RecordId,
    Retention,
)
from nebis.core.verbs import (
    AbsenceProof,
    CallAgain,
    Checkpoint,
    Claim,
    Complete,
    DidNotHappen,
    Doubt,
    EffectKnown,
    Ended,
    Expire,
    Forget,
    Intend,
    Purge,
    Release,
    Resolve,
    Suspend,
    TakeOver,
    Terms,
    TurnBack,
    Verb,
    Verdict,
    Withdraw,
)
from nebis.testing.modelcheck.plan import VERDICT_LETTERS, Plan
from nebis.testing.modelcheck.world import Body, Message

LEASE_US = 50
RECALL_US = 1_000
RETENTION = Retention(outcome_us=10_000, metadata_us=10_000)
RECOVERIES_LIMIT = 1
REJECTION = b"R"
DIGEST = b"same arguments"
KIND_LETTERS = {OutcomeKind.SUCCEEDED: "S", OutcomeKind.REJECTED: "R", OutcomeKind.UNKNOWN: "U"}
KINDS = {letter: kind for kind, letter in KIND_LETTERS.items()}
VERDICTS = {letter: verdict for verdict, letter in VERDICT_LETTERS.items()}
PROOFS: dict[str, AbsenceProof | None] = {
    "not voided": AbsenceProof.VOIDED,
    "not owner dead": AbsenceProof.OWNER_DEAD,
    "not": None,
}


def nonce_of(name: int) -> Nonce:
    """Return the nonce of an attempt."""
    return Nonce(bytes([name]))


def record_id_of(life: int) -> RecordId:
    """Return the record id of a life."""
    return RecordId(UUID(int=life))


def identity_of(tenant: int) -> bytes:
    """Return where the store looks: both tenants use the same key, and identities keep them apart (G5)."""
    return bytes([tenant])


def bytes_of(body: Body) -> bytes:
    """Return an outcome as the core stores it."""
    return bytes([ord(body.kind), body.life, body.author])


def body_of(stored: bytes) -> Body:
    """Return an outcome as the model compares it."""
    return Body(chr(stored[0]), stored[1], stored[2])


class Letters:
    """The spelling for one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def verb(self, message: Message) -> Verb:
        """Return the core's verb for a message."""
        identity = identity_of(message.tenant)
        match message.verb:
            case "claim":
                return self._claim(message)
            case "take_over":
                return TakeOver(
                    identity=identity,
                    record_id=record_id_of(message.life),
                    fence_seen=message.fence,
                    nonce=nonce_of(message.name),
                    lease_us=LEASE_US,
                    recoveries_limit=RECOVERIES_LIMIT,
                )
            case "resolve":
                return self._resolve(message)
            case "expire":
                return Expire(identity=identity)
            case "purge":
                return Purge(identity=identity)
            case "forget":
                return Forget(identity=identity)
            case _:
                return self._owners(message)

    def _claim(self, message: Message) -> Claim:
        return Claim(
            identity=identity_of(message.tenant),
            record_id=record_id_of(message.name),
            nonce=nonce_of(message.name),
            tenant=str(message.tenant),
            key="key",
            fingerprints=((1, bytes([message.command])),),
            terms=Terms(
                scope="payments", operation="pay", mode=self._plan.mode, lease_us=LEASE_US, retention=RETENTION
            ),
        )

    def _owners(self, message: Message) -> Verb:
        ownership = Ownership(
            identity=identity_of(message.tenant),
            record_id=record_id_of(message.life),
            fence=Fence(message.fence),
            nonce=nonce_of(message.name),
        )
        match message.verb:
            case "intend":
                return self._intend(message, ownership)
            case "checkpoint" | "local":
                return Checkpoint(
                    ownership=ownership,
                    name=self._plan.effect_name(message.about[:-1]),
                    verdict=VERDICTS[message.about[-1]],
                    result=message.about[-1].encode(),
                    transactional_digest=DIGEST if message.verb == "local" else None,
                )
            case "complete":
                body = Body(message.about, message.life, message.name)
                outcome = Outcome(kind=KINDS[message.about], body=bytes_of(body))
                return Complete(ownership=ownership, outcome=outcome, retention=RETENTION)
            case "turn_back":
                return TurnBack(ownership=ownership, rejection=REJECTION)
            case "suspend":
                return Suspend(ownership=ownership)
            case "release":
                return Release(ownership=ownership)
            case "withdraw":
                return Withdraw(ownership=ownership)
            case "doubt":
                return Doubt(ownership=ownership, reason="outcome-unknown")
            case _:
                raise ValueError(message.verb)

    def _intend(self, message: Message, ownership: Ownership) -> Intend:
        step = message.about.rstrip("+")
        effect_class = self._plan.effect_class(step)
        has_window = effect_class in (EffectClass.STICKY, EffectClass.SUCCESS_ONLY)
        return Intend(
            ownership=ownership,
            name=self._plan.effect_name(step),
            effect_class=effect_class,
            derived_key=chr(message.key),
            digest=DIGEST,
            recall_us=RECALL_US if has_window else None,
            lease_us=LEASE_US,
            is_again=message.about.endswith("+"),
        )

    def _resolve(self, message: Message) -> Resolve:
        """Return what a resolver says: `about` is its word, then the step that it looked at."""
        word, _, step = message.about.partition("/")
        return Resolve(
            identity=identity_of(message.tenant),
            record_id=record_id_of(message.life),
            fence_seen=message.fence,
            effect_seen=self._plan.effect_name(step) if step else None,
            nonce=nonce_of(message.name),
            verdict=self._verdict(word, message),
            retention=RETENTION,
        )

    def _verdict(self, word: str, message: Message) -> Verdict:
        match word:
            case "S" | "R" | "U":
                body = Body(word, message.life, message.name)
                return Ended(outcome=Outcome(kind=KINDS[word], body=bytes_of(body)))
            case "happened" | "rejected":
                letter = word[0].upper()
                return EffectKnown(verdict=VERDICTS[letter], result=letter.encode())
            case "again":
                return CallAgain()
            case _:
                return DidNotHappen(proof=PROOFS[word])
