"""Histories made by chance: true ones, and ones that break exactly one rule."""

import random
from collections.abc import Callable
from typing import Any

Entry = dict[str, Any]


class Story:
    """A history while it is being made up; time is a number that only grows."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.entries: list[Entry] = []
        self.now = 0
        self.fence = chance.randrange(1000)
        self.succeeded: list[str] = []
        self.declined: list[str] = []
        self.doubtful: list[str] = []
        self.aggregates: list[str] = []
        for number in range(chance.randint(4, 7)):
            tell = [self._success, self._decline, self._doubt, self._nothing][min(number, chance.randint(0, 3))]
            tell(f"key-{number}")
        # The first three are always there, so that every rule has something to be broken on.
        self._decline("key-declined")
        self._doubt("key-doubtful")
        self._publish()

    def tick(self) -> int:
        self.now += self.chance.randint(1, 5)
        return self.now

    def add(self, key: str, kind: str, **marks: Any) -> Entry:
        entry = {"type": kind, "tenant": "acct", "key": key, "at": self.tick(), **marks}
        self.entries.append(entry)
        return entry

    def invoke(self, key: str, *, command: str = "pay 5") -> str:
        call = f"call-{len(self.entries)}"
        self.add(key, "invoke", call=call, command=command, nonce=f"nonce of {call}")
        return call

    def grant(self, key: str) -> None:
        self.fence += self.chance.randint(1, 3)
        self.add(key, "granted", record=f"record of {key}", fence=self.fence)

    def ok(self, key: str, ran: str, **marks: Any) -> None:
        """Let somebody ask and be told the success that `ran` made."""
        call = self.invoke(key)
        told = {"digest": f"answer of {key}", "body_tenant": "acct", "body_nonce": f"nonce of {ran}"}
        self.add(key, "ok", call=call, **{**told, **marks})

    def refused(self, key: str, code: str, **marks: Any) -> str:
        call = self.invoke(key, **marks)
        self.add(key, "refused", call=call, code=code)
        return call

    def of(self, key: str, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if (entry.get("key"), entry["type"]) == (key, kind)]

    def some(self, most: int) -> range:
        return range(self.chance.randint(0, most))

    def _success(self, key: str) -> None:
        """Crash a few times, run once, answer many; twins are refused meanwhile, and strangers ever after."""
        for _ in self.some(2):
            crashed = self.invoke(key)
            self.grant(key)
            if self.chance.random() < 0.5:
                self.add(key, "info", call=crashed)
        ran = self.invoke(key)
        self.grant(key)
        self.refused(key, "in-flight")
        self.add(key, "effect", attempt=ran if self.chance.random() < 0.8 else None)
        self.add(key, "completed", record=f"record of {key}")
        if self.chance.random() < 0.7:
            told = {"digest": f"answer of {key}", "body_tenant": "acct", "body_nonce": f"nonce of {ran}"}
            self.add(key, "ok", call=ran, **told)
        self.ok(key, ran)
        for _ in self.some(4):
            self.ok(key, ran)
        for _ in self.some(2):
            self.refused(key, "key-reused", command="pay 6")
        for _ in self.some(1):
            self.refused(key, "store-unavailable")
        self.add(key, "record", state=self.chance.choice(["completed", "expired"]))
        self.succeeded.append(key)

    def _decline(self, key: str) -> None:
        ran = self.invoke(key)
        self.grant(key)
        self.add(key, "completed", record=f"record of {key}")
        self.add(key, "fail", call=ran, code="rejected")
        for _ in self.some(3):
            self.add(key, "fail", call=self.invoke(key), code="rejected")
        self.add(key, "record", state="completed")
        self.declined.append(key)

    def _doubt(self, key: str) -> None:
        ran = self.invoke(key)
        self.grant(key)
        for _ in self.some(1):
            self.add(key, "effect", attempt=ran)
        for _ in range(self.chance.randint(1, 3)):
            self.add(key, "info", call=self.invoke(key), code="outcome-unknown")
        self.add(key, "record", state="in_doubt", reason="owner-gone")
        self.doubtful.append(key)

    def _nothing(self, key: str) -> None:
        self.refused(key, "store-unavailable")
        if self.chance.random() < 0.5:
            self.add(key, "record", state="available")

    def _publish(self) -> None:
        for number in range(self.chance.randint(1, 3)):
            aggregate = f"account-{number}"
            rows = [f"row-{number}-{place}" for place in range(self.chance.randint(2, 5))]
            for kind in ("business", "outbox", "consumed"):
                for row in rows:
                    self.entries.append({"type": kind, "tenant": "acct", "aggregate": aggregate, "row": row})
            self.aggregates.append(aggregate)


def true_story(seed: int) -> list[Entry]:
    """Return a history in which every rule holds."""
    return Story(random.Random(seed)).entries


def false_story(rule: str, seed: int) -> list[Entry]:
    """Return a history in which every rule holds but one."""
    story = Story(random.Random(seed))
    story.chance.choice(_BREAKERS[rule])(story)
    return story.entries


def _success_without_effect(story: Story) -> None:
    key = story.chance.choice(story.succeeded)
    story.entries.remove(story.of(key, "effect")[0])


def _success_with_two_effects(story: Story) -> None:
    story.add(story.chance.choice(story.succeeded), "effect", attempt=None)


def _effect_after_a_refusal(story: Story) -> None:
    story.add(story.chance.choice(story.declined), "effect", attempt=None)


def _effect_before_a_refusal(story: Story) -> None:
    key = story.chance.choice(story.declined)
    story.entries.insert(0, {"type": "effect", "tenant": "acct", "key": key, "at": 0, "attempt": None})


def _two_effects_in_doubt(story: Story) -> None:
    key = story.chance.choice(story.doubtful)
    for _ in range(2):
        story.add(key, "effect", attempt=None)


def _another_answer(story: Story) -> None:
    key = story.chance.choice(story.succeeded)
    story.chance.choice(story.of(key, "ok"))["digest"] = "another answer"
    story.ok(key, _ran(story, key))


def _in_flight_after_success(story: Story) -> None:
    story.refused(story.chance.choice(story.succeeded), "in-flight")


def _refused_for_reuse_without_reuse(story: Story) -> None:
    story.refused(story.chance.choice(story.succeeded), "key-reused")


def _other_command_answered(story: Story) -> None:
    key = story.chance.choice(story.succeeded)
    call = story.invoke(key, command="pay 7")
    story.add(
        key, "ok", call=call, digest=f"answer of {key}", body_tenant="acct", body_nonce=_ran(story, key, "nonce of ")
    )


def _answered_before_durable(story: Story) -> None:
    key = story.chance.choice(story.succeeded)
    story.of(key, "completed")[0]["at"] = story.of(key, "ok")[0]["at"] + 0.5


def _answered_and_never_durable(story: Story) -> None:
    key = story.chance.choice(story.succeeded)
    story.entries.remove(story.of(key, "completed")[0])


def _answer_of_another_tenant(story: Story) -> None:
    story.chance.choice(story.of(story.chance.choice(story.succeeded), "ok"))["body_tenant"] = "acct-2"


def _answer_of_another_key(story: Story) -> None:
    other = story.of(story.declined[0], "invoke")[0]["nonce"]
    story.chance.choice(story.of(story.chance.choice(story.succeeded), "ok"))["body_nonce"] = other


def _still_in_progress(story: Story) -> None:
    story.of(story.chance.choice(story.succeeded + story.doubtful), "record")[0]["state"] = "in_progress"


def _doubt_without_a_reason(story: Story) -> None:
    story.of(story.chance.choice(story.doubtful), "record")[0]["reason"] = story.chance.choice([None, ""])


def _two_records(story: Story) -> None:
    story.add(story.chance.choice(story.succeeded), "record", state="completed")


def _fence_goes_back(story: Story) -> None:
    key = story.chance.choice(story.succeeded + story.doubtful)
    lower = story.of(key, "granted")[-1]["fence"] - story.chance.randint(0, 1)
    story.add(key, "granted", record=f"record of {key}", fence=lower)


def _completed_twice(story: Story) -> None:
    key = story.chance.choice(story.succeeded + story.declined)
    story.add(key, "completed", record=f"record of {key}")


def _row_not_published(story: Story) -> None:
    story.entries.remove(story.chance.choice(_rows(story, story.chance.choice(["outbox", "consumed"]))))


def _row_published_twice(story: Story) -> None:
    story.entries.append(dict(story.chance.choice(_rows(story, story.chance.choice(["outbox", "consumed"])))))


def _row_of_nobody(story: Story) -> None:
    row = dict(story.chance.choice(_rows(story, "outbox")), row="row of nobody")
    story.entries.append(row)
    story.entries.append(dict(row, type="consumed"))


def _rows_out_of_order(story: Story) -> None:
    first, second = [row for row in _rows(story, "consumed") if row["aggregate"] == "account-0"][:2]
    first["row"], second["row"] = second["row"], first["row"]


def _refused_call_charged(story: Story) -> None:
    key = story.chance.choice(story.succeeded)
    story.of(key, "effect")[0]["attempt"] = story.chance.choice(story.of(key, "refused"))["call"]


def _ran(story: Story, key: str, prefix: str = "") -> str:
    nonce: str = story.of(key, "ok")[0]["body_nonce"]
    return nonce if prefix else nonce.removeprefix("nonce of ")


def _rows(story: Story, kind: str) -> list[Entry]:
    return [entry for entry in story.entries if entry["type"] == kind]


_BREAKERS: dict[str, list[Callable[[Story], None]]] = {
    "H1": [_success_without_effect, _success_with_two_effects],
    "H2": [_effect_after_a_refusal, _effect_before_a_refusal],
    "H3": [_two_effects_in_doubt],
    "H4": [_another_answer],
    "H5": [_in_flight_after_success, _refused_for_reuse_without_reuse, _other_command_answered],
    "H6": [_answered_before_durable, _answered_and_never_durable],
    "H7": [_answer_of_another_tenant],
    "H8": [_answer_of_another_key],
    "H9": [_still_in_progress, _doubt_without_a_reason, _two_records],
    "H10": [_fence_goes_back, _completed_twice],
    "H11": [_row_not_published, _row_published_twice, _row_of_nobody, _rows_out_of_order],
    "H12": [_refused_call_charged],
}
RULES = tuple(_BREAKERS)
