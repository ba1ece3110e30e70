"""A real browser drives every switch of the Retry Lab; what the page counts is what the gateway has counted."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.demo.browser import launch
from tests.demo.stage import Demo

SETTLED_MS = 60_000
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The page is the same on every store, so that one is enough."""
    with Demo(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = launch(playwright)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, lab: Demo) -> Iterator[Page]:
    """The page on a desktop. Nothing but the lab can be reached: it needs no internet."""
    context = browser.new_context(viewport=DESKTOP)  # type: ignore[arg-type]  # A plain dictionary is what it takes.
    elsewhere: list[str] = []
    context.on("request", lambda request: elsewhere.append(request.url) if str(lab.port) not in request.url else None)
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.goto(f"http://127.0.0.1:{lab.port}/")
    yield opened
    context.close()
    assert elsewhere == []
    assert faults == []


def pay(page: Page, *switches: str, taps: int = 1) -> None:
    """Set switches, tap Pay, and wait until every request has its answer and everything is in the books."""
    for switch in switches:
        page.get_by_role("switch", name=switch, exact=True).check()
    for _ in range(taps):
        page.get_by_role("button", name="Pay").click()
    expect(page.locator("body")).to_have_attribute("data-state", "settled", timeout=SETTLED_MS)


def counts(page: Page) -> dict[str, int]:
    names = ("charge", "ledger", "outbox", "receipt")
    return {name: int(page.locator(f"#{name}-count").inner_text()) for name in names}


def told(page: Page) -> list[str]:
    return page.locator(".told").all_inner_texts()


def charged(lab: Demo, page: Page) -> int:
    return len(lab.charges(page.locator("#invoice").inner_text()))


ONCE = {"charge": 1, "ledger": 2, "outbox": 1, "receipt": 1}


@pytest.mark.parametrize(
    ("switch", "seen"),
    [
        ("lose the response", r"answer lost.*201 replayed"),
        ("slow bank", r"gave up waiting.*201 replayed"),
        ("crash the server after the card is charged", r"server died.*(201 recovered|201 replayed)"),
        ("change the amount under the same key", r"201 ran once.*422 key reused"),
        ("tap ten times", r"(?=.*201 ran once)(?=.*201 replayed)"),
        ("new key on each retry", r"answer lost.*201 replayed"),
    ],
)
def test_each_switch_ends_with_one_charge(lab: Demo, page: Page, switch: str, seen: str) -> None:
    pay(page, switch)

    assert counts(page) == ONCE
    assert charged(lab, page) == 1
    assert re.search(seen, " ".join(told(page)))
    expect(page.locator("#verdict")).to_contain_text("Charged once")
    expect(page.locator("#now")).to_have_text("completed")
    if switch == "slow bank":
        page.get_by_role("switch", name=switch, exact=True).uncheck()


def test_a_double_tap_is_one_charge_with_nebis_and_two_without(lab: Demo, page: Page) -> None:
    pay(page, taps=2)
    assert (counts(page), charged(lab, page)) == (ONCE, 1)

    pay(page, "without Nebis", taps=2)
    assert (counts(page)["charge"], counts(page)["receipt"], charged(lab, page)) == (2, 2, 2)
    expect(page.locator("#verdict")).to_contain_text("Charged twice")


def test_all_that_can_go_wrong_at_once_is_still_one_charge(lab: Demo, page: Page) -> None:
    pay(
        page,
        "lose the response",
        "crash the server after the card is charged",
        "tap ten times",
        "new key on each retry",
    )

    assert (counts(page), charged(lab, page)) == (ONCE, 1)


def test_the_keyboard_is_enough(lab: Demo, page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the Pay button"
    page.keyboard.press("Enter")
    for _ in range(12):
        if page.evaluate("document.activeElement.id") == "lose":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.locator("#pay").focus()
    page.keyboard.press("Enter")
    expect(page.locator("body")).to_have_attribute("data-state", "settled", timeout=SETTLED_MS)

    assert told(page) == ["answer lost", "201 replayed"]
    assert charged(lab, page) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_both_colours(browser: Browser, lab: Demo, tmp_path: Path, scheme: str) -> None:
    context = browser.new_context(viewport=PHONE, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{lab.port}/")

    pay(page, taps=2)

    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in re.findall(r"\d+", back)[:3]) / 3
    assert (light > 200) == (scheme == "light")
    assert page.screenshot(path=tmp_path / "phone.png", full_page=True)
    context.close()


def test_crash_points_exist_only_in_the_demo() -> None:
    """The service that people copy knows nothing of the lab."""
    folder = Path(__file__).parents[2] / "examples" / "payments"

    assert not [path.name for path in folder.glob("*.py") if re.search(r"demo\.(faults|lab)|SIGKILL", path.read_text())]
