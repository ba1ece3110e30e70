"""Which rule is for a request: looked up where a path is written out, and always the first."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from nebis.http.pattern import Pattern
from nebis.integrations.rules import Matching


@dataclass(frozen=True)
class Patterned:
    pattern: Pattern


SEGMENTS = st.sampled_from(["a", "b", "*", "{id}", ""])
PATTERNS = st.builds(
    lambda method, segments, rest: f"{method} /{'/'.join([*segments, *rest])}",
    st.sampled_from(["POST", "PUT"]),
    st.lists(SEGMENTS, min_size=1, max_size=3),
    st.sampled_from([[], ["**"]]),
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "", "*"]), max_size=4).map("/".join)


@given(
    patterns=st.lists(PATTERNS, max_size=5), method=st.sampled_from(["POST", "GET"]), path=PATHS, slash=st.booleans()
)
def test_the_first_rule_whose_pattern_matches_is_found(
    patterns: list[str], method: str, path: str, slash: bool
) -> None:
    rules = [Patterned(Pattern.parse(pattern)) for pattern in patterns]
    asked = f"/{path}" if slash else path

    found = Matching(rules).first(method, asked)

    assert found is next((rule for rule in rules if rule.pattern.matches(method, asked)), None)


def test_an_earlier_wildcard_takes_a_path_that_a_later_rule_writes_out() -> None:
    wide, exact = Patterned(Pattern.parse("POST /payments/*")), Patterned(Pattern.parse("POST /payments/refund"))

    assert Matching([wide, exact]).first("POST", "/payments/refund") is wide
    assert Matching([exact, wide]).first("POST", "/payments/refund") is exact
