"""If-Match to the letter of RFC 9110."""

import pytest

from nebis.errors import PreconditionFailed, PreconditionMalformed, PreconditionRequired
from nebis.http import IfMatch, require_match, strong_etag


def test_a_tag_is_strong_and_made_of_a_version_or_of_bytes() -> None:
    assert strong_etag(7) == '"7"'
    assert strong_etag(b"body") == strong_etag(b"body") != strong_etag(b"bodies")
    assert IfMatch.parse([strong_etag(b"body")]) == IfMatch(tags=frozenset({strong_etag(b"body")}))


@pytest.mark.parametrize(
    ("lines", "current", "expected"),
    [
        (['"7"'], '"7"', True),
        (['"7"'], '"8"', False),
        (['  "7"\t'], '"7"', True),
        (['"6", "7"'], '"7"', True),
        (['"6","7" ,"8"'], '"7"', True),
        ([', "7",, '], '"7"', True),
        (['"6"', '"7"'], '"7"', True),
        (['"a,b"'], '"a,b"', True),
        (['"a,b"'], '"a"', False),
        (['"\xe9"'], '"\xe9"', True),
        (['""'], '""', True),
        (["*"], '"7"', True),
        (["*"], None, False),
        (['"7"'], None, False),
        (['W/"7"'], '"7"', False),
        (['W/"7"'], 'W/"7"', False),
        (['W/"7", "7"'], '"7"', True),
    ],
)
def test_a_tag_matches_strongly(lines: list[str], current: str | None, expected: bool) -> None:
    condition = IfMatch.parse(lines)

    assert condition is not None
    assert condition.matches(current) is expected


@pytest.mark.parametrize(
    "lines",
    [
        [""],
        [" "],
        [","],
        ["7"],
        ["'7'"],
        ['"7'],
        ['7"'],
        ['w/"7"'],
        ['W/ "7"'],
        ['"7" "8"'],
        ['"7"x'],
        ['*, "7"'],
        ["*", "*"],
        ['"a b"'],
        ['"a\x7f"'],
        ['"a\x00"'],
        ['"a"b"'],
    ],
)
def test_what_is_no_list_of_tags_is_malformed(lines: list[str]) -> None:
    with pytest.raises(PreconditionMalformed):
        IfMatch.parse(lines)


def test_a_long_header_is_read_in_one_pass() -> None:
    """SEC37."""
    condition = IfMatch.parse([", ".join(f'"{number}"' for number in range(20_000))])

    assert condition is not None
    assert condition.matches('"19999"')
    with pytest.raises(PreconditionMalformed):
        IfMatch.parse(['"' + "a" * 500_000])


def test_a_change_needs_the_current_version() -> None:
    require_match('"7"', '"7"')
    require_match(['"6"', '"7"'], strong_etag(7))
    with pytest.raises(PreconditionFailed):
        require_match('"6"', '"7"')
    with pytest.raises(PreconditionFailed):
        require_match("*", None)
    with pytest.raises(PreconditionRequired):
        require_match(None, '"7"')
    with pytest.raises(PreconditionRequired):
        require_match([], '"7"')
