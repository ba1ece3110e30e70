import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis import BodyRefused, BodyTooLarge, ConfigError, KeyMissing, TenantMissing
from nebis.http import BodyKey, ProxyHeader
from nebis.http.body import BodyBuffer, json_of
from nebis.http.pattern import Pattern

PROXY = ProxyHeader("X-Tenant", ("10.0.0.0/8", "::1/128"))
JSON = (("content-type", "application/json"),)


@pytest.mark.parametrize("peer", ["10.1.2.3", "::1"])
def test_a_proxy_that_is_known_says_whose_request_it_is(peer: str) -> None:
    assert PROXY.read(peer, (("x-tenant", "acct_1"),)) == "acct_1"


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.1", (("X-Tenant", "acct_1"),)),
        (None, (("X-Tenant", "acct_1"),)),
        ("unix:", (("X-Tenant", "acct_1"),)),
        ("10.1.2.3", ()),
        ("10.1.2.3", (("X-Tenant", ""),)),
        ("10.1.2.3", (("X-Tenant", "acct_1"), ("x-tenant", "acct_2"))),
    ],
)
def test_nobody_else_is_believed(peer: str | None, headers: tuple[tuple[str, str], ...]) -> None:
    """SEC01: a client that sets the header itself is nobody."""
    with pytest.raises(TenantMissing):
        PROXY.read(peer, headers)


def test_a_key_in_the_body_is_a_string_or_missing() -> None:
    rule = BodyKey("client_token")

    assert rule.read({"client_token": "abc"}, "pay") == "abc"
    missing: list[object] = [{}, [], None, b"raw", {"client_token": None}]
    for body in missing:
        with pytest.raises(KeyMissing):
            rule.read(body, "pay")
    with pytest.raises(BodyRefused):
        rule.read({"client_token": 17}, "pay")


def test_a_body_is_never_held_above_its_cap() -> None:
    """F079."""
    buffer = BodyBuffer(10)
    buffer.add(b"x" * 10, is_last=False)

    with pytest.raises(BodyTooLarge):
        buffer.add(b"x", is_last=True)

    assert not buffer.is_whole
    assert buffer.bytes() == b""


def test_a_body_that_is_not_json_counts_as_its_bytes() -> None:
    assert json_of(b'{"a": 1}', (), limit_bytes=100) == b'{"a": 1}'
    assert json_of(b'{"a": 1}', JSON, limit_bytes=100) == {"a": 1}
    assert json_of(b"", JSON, limit_bytes=100) == b""


def test_a_pattern_means_what_it_looks_like() -> None:
    one, rest = Pattern.parse("POST /accounts/{id}/payments"), Pattern.parse("POST /v1/**")

    assert one.matches("POST", "/accounts/17/payments")
    assert not one.matches("PATCH", "/accounts/17/payments")
    assert not one.matches("POST", "/accounts/17/payments/")
    assert not one.matches("POST", "/accounts/17/refunds")
    assert rest.matches("POST", "/v1/a/b")
    assert not rest.matches("POST", "/v1")
    assert not rest.matches("POST", "/v2/a")


SEGMENTS = st.lists(st.sampled_from(["a", "b", "*", "**", ""]), max_size=3)


@given(wanted=SEGMENTS.filter(lambda segments: "**" not in segments[:-1]), given_segments=SEGMENTS, start=st.text("a/"))
def test_a_path_matches_segment_by_segment(wanted: list[str], given_segments: list[str], start: str) -> None:
    pattern, path = Pattern("POST", tuple(wanted)), "/".join([start, *given_segments])
    found, is_rest = path.split("/")[1:], wanted[-1:] == ["**"]
    fixed = wanted[:-1] if is_rest else wanted
    has_length = len(found) > len(fixed) if is_rest else len(found) == len(fixed)
    is_alike = all(want in ("*", have) for want, have in zip(fixed, found, strict=False))

    assert pattern.matches("POST", path) == (has_length and is_alike)
    assert not pattern.matches("PUT", path)


def test_a_pattern_that_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError):
        Pattern.parse("payments")
