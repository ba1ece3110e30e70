import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.keygrammar import LONGEST_KEY, parse_key
from nebis.errors import KeyMalformed

VISIBLE = [chr(code) for code in range(0x21, 0x7F)]
BARE = sorted(set(VISIBLE) - set('",;\\'))
UUID_TEXT = "8e03978e-40d5-43e8-bc93-6894a57f9324"

GOOD = [
    (UUID_TEXT, UUID_TEXT),
    (f'"{UUID_TEXT}"', UUID_TEXT),
    ("a", "a"),
    ('"a"', "a"),
    ("1", "1"),
    ("order:42/refund#2", "order:42/refund#2"),
    ("user@example.com", "user@example.com"),
    ("base64+/=", "base64+/="),
    ("it's", "it's"),
    (":YWJj:", ":YWJj:"),
    ("?1", "?1"),
    ("(a)", "(a)"),
    ("null", "null"),
    ("../../etc/passwd", "../../etc/passwd"),
    ("%00", "%00"),
    ("{}[]<>|^`~!$&*", "{}[]<>|^`~!$&*"),
    ('"a,b;c"', "a,b;c"),
    (r'"\"hi\""', '"hi"'),
    (r'"a\\b"', r"a\b"),
    (r'"\\\\"', r"\\"),
    (r'"\""', '"'),
    ("x" * LONGEST_KEY, "x" * LONGEST_KEY),
    (f'"{"x" * LONGEST_KEY}"', "x" * LONGEST_KEY),
    (f'"{chr(92) * 2 * LONGEST_KEY}"', chr(92) * LONGEST_KEY),
]
BAD = {
    "empty": "",
    "empty string": '""',
    "one space": " ",
    "only a tab": "\t",
    "leading space": " abc",
    "trailing space": "abc ",
    "inner space": "a b",
    "space in quotes": '"a b"',
    "leading tab": "\tabc",
    "line feed": "abc\n",
    "carriage return": "abc\r",
    "header injection": "abc\r\nSet-Cookie: a=b",
    "null byte": "a\0b",
    "null byte in quotes": '"a\0b"',
    "escape character": "\x1b[31mred",
    "delete character": "abc\x7f",
    "delete in quotes": '"abc\x7f"',
    "unit separator": "a\x1fb",
    "bell": "\x07",
    "vertical tab": "a\x0bb",
    "form feed": "a\x0cb",
    "next line": "a\x85b",
    "no-break space": "a\xa0b",
    "latin letter": "é",
    "latin in quotes": '"é"',
    "full-width digit": "\uff11",
    "arabic digit": "\u0661",
    "zero-width space": "a\u200bb",
    "right-to-left override": "a\u202eb",
    "byte order mark": "\ufeffabc",
    "emoji": "🙂",
    "lone surrogate": "a\ud800",
    "line separator": "a\u2028b",
    "curly quotes": "\u201cabc\u201d",
    "comma": "a,b",
    "only a comma": ",",
    "trailing comma": "abc,",
    "two keys in one line": "abc, def",
    "semicolon": "a;b",
    "bare with parameter": "abc;v=1",
    "backslash": "a\\b",
    "only a backslash": "\\",
    "quote in the middle": 'a"b',
    "quote at the end": 'abc"',
    "quoted pair after bare": 'a"b"',
    "only a quote": '"',
    "unclosed": '"abc',
    "unclosed by escape": '"abc\\"',
    "ends in escape": '"abc\\',
    "escaped letter": '"a\\nb"',
    "escaped digit": '"\\0"',
    "escaped space": '"\\ "',
    "escaped latin": '"\\é"',
    "parameter": '"abc";v=1',
    "semicolon after": '"abc";',
    "list": '"abc", "def"',
    "list without space": '"abc","def"',
    "text after": '"abc"def',
    "space after": '"abc" ',
    "space before": ' "abc"',
    "three quotes": '"""',
    "doubled quotes": '""abc""',
    "256 characters": "x" * 256,
    "256 characters in quotes": f'"{"x" * 256}"',
    "256 escaped characters": f'"{chr(92) * 2 * 256}"',
    "longest spelling, unescaped": "x" * 512,
    "longest quoted spelling, unescaped": f'"{"x" * 510}"',
    "513 characters": "x" * 513,
}


@pytest.mark.parametrize(("raw", "key"), GOOD)
def test_a_good_key_is_read(raw: str, key: str) -> None:
    assert parse_key(raw) == key


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_a_bad_key_is_refused_with_a_reason_that_never_repeats_it_sec05(raw: str) -> None:
    with pytest.raises(KeyMalformed) as caught:
        parse_key(raw)

    assert caught.value.detail
    assert len(raw) < 4 or raw not in str(caught.value)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", "is empty"),
        ('""', "is empty"),
        ("a b", "space"),
        ("a,b", "comma"),
        ('"a', "closing quote is missing"),
        ('"a";v=1', "follows its closing quote"),
        ('"\\n"', "backslash may only"),
        ("x" * 256, "more than 255"),
        ("x" * 513, "more than 255"),
    ],
)
def test_the_reason_says_what_is_wrong(raw: str, reason: str) -> None:
    with pytest.raises(KeyMalformed, match=reason):
        parse_key(raw)


@pytest.mark.parametrize("raw", ['"' + "\\x" * 10**6, '"' * 10**6, "\0" * 10**6, "," * 10**6])
def test_a_megabyte_is_refused_by_its_length_alone_sec37(raw: str) -> None:
    """Whoever looked at the first character of these would complain about something else."""
    with pytest.raises(KeyMalformed, match="more than 255"):
        parse_key(raw)


@given(st.text(alphabet=VISIBLE, min_size=1, max_size=LONGEST_KEY))
def test_quoting_any_visible_characters_round_trips(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert parse_key(quoted) == key


@given(st.text(alphabet=BARE, min_size=1, max_size=LONGEST_KEY))
def test_quoted_and_bare_spelling_are_the_same_key(key: str) -> None:
    assert parse_key(key) == parse_key(f'"{key}"') == key


@given(st.text(max_size=600))
def test_any_text_is_a_visible_key_or_refused(raw: str) -> None:
    try:
        key = parse_key(raw)
    except KeyMalformed:
        return

    assert 1 <= len(key) <= LONGEST_KEY
    assert set(key) <= set(VISIBLE)
    assert raw == key or raw.startswith('"')
