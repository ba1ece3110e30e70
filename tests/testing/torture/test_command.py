"""`nebis torture` as people run it: what it says, what it writes, how it ends; and the page about it."""

import asyncio
import json
import os
import pty
import re
import select
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nebis.errors import ConfigError
from nebis.testing.torture import CHECKS, run
from nebis.testing.torture.operation import parse_operation
from tests.cli.command import nebis
from tests.testing.torture.broken_servers import EchoesKeys, NoIdempotency
from tests.testing.torture.shop import SHOP_TOML, Shop, open_shop
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "how-to" / "torture.md"
SAMPLE = ROOT / "examples" / "payments" / "torture.toml"
QUICK = ("--only", "semantics.replay-effect", "--only", "security.echoed-key", "--only", "network.chunked")


@pytest.fixture
def op(tmp_path: Path) -> Path:
    path = tmp_path / "op.toml"
    path.write_text(SHOP_TOML)
    return path


@pytest.fixture
def free_port() -> Iterator[int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_run_that_passes_ends_with_0_and_a_line_for_each_check(op: Path) -> None:
    with open_shop(Shop()) as url:
        outcome = nebis("torture", url, "--op", str(op), *QUICK)

    assert outcome.status == 0
    assert outcome.stdout.splitlines() == [
        "ok    semantics.replay-effect  A retry does not happen again",
        "n/a   network.chunked          A body without a length is the same body",
        "      the server does not take bodies without a length (411)",
        "ok    security.echoed-key      A refusal does not repeat the key",
        "2 passed, 0 failed, 1 not applicable",
    ]
    assert re.fullmatch(r"\[1/3\] semantics.replay-effect passed in [\d.]+ s", outcome.stderr.splitlines()[0])


def test_a_failure_ends_with_1_and_is_in_every_report(op: Path, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    with open_shop(EchoesKeys()) as url:
        outcome = nebis("torture", url, "--op", str(op), *QUICK, *options)

    assert outcome.status == 1
    assert "FAIL  security.echoed-key      A refusal does not repeat the key" in outcome.stdout
    assert "1 passed, 1 failed, 1 not applicable" in outcome.stdout
    report = json.loads(files["json"].read_text())
    assert (report["passed"], report["counts"]) == (False, {"passed": 1, "failed": 1, "skipped": 1})
    [failure] = [check for check in report["checks"] if check["verdict"] == "failed"]
    assert failure["detail"] == "the refusal of another body repeats the key"
    suites = ET.parse(files["junit"]).getroot()
    assert suites.attrib["failures"] == "1"
    assert [case.attrib["message"] for case in suites.iter("failure")] == [failure["detail"]]
    page = files["html"].read_text()
    assert "prefers-color-scheme: dark" in page
    assert failure["detail"] in page
    assert not re.search(r"<script|<link|src=|https?://(?!127\.0\.0\.1)", page)


def test_json_may_go_to_stdout(op: Path) -> None:
    with open_shop(Shop()) as url:
        outcome = nebis("torture", url, "--op", str(op), "--only", "security.cached", "--json", "-")

    assert json.loads(outcome.stdout)["counts"] == {"passed": 1, "failed": 0, "skipped": 0}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_line_of_a_failure_shows_it_again(op: Path, tmp_path: Path) -> None:
    uuidgen = tmp_path / "uuidgen"
    uuidgen.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import uuid; print(uuid.uuid4())'\n")
    uuidgen.chmod(0o755)
    shop = NoIdempotency()
    with open_shop(shop) as url:
        told = nebis("torture", url, "--op", str(op), "--only", "semantics.replay-effect", "--json", "-")
        [failure] = json.loads(told.stdout)["checks"]
        shop.effects.clear()
        shown = subprocess.run(
            ["bash", "-c", failure["reproduce"]],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )

    assert shown.stdout.count("HTTP/1.1 201") == 4, shown
    assert list(shop.effects.values()) == [4]


def test_a_secret_of_the_environment_is_in_no_report(op: Path) -> None:
    op.write_text(SHOP_TOML.replace("Bearer secret-1", "Bearer {env:SHOP_TOKEN}"))
    with open_shop(NoIdempotency()) as url:
        only = ("--only", "semantics.replay-effect")
        outcome = nebis("torture", url, "--op", str(op), *only, SHOP_TOKEN="secret-1")

    assert outcome.status == 1
    assert "secret-1" not in outcome.stdout
    assert "'Authorization: Bearer '\"$SHOP_TOKEN\"''" in outcome.stdout


def test_a_person_sees_one_line_that_moves_and_colours(op: Path) -> None:
    with open_shop(Shop()) as url:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", "from nebis.cli import main; main()", "torture", url, "--op", str(op), *QUICK],
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
        )
        os.close(theirs)
        seen = _drained(ours)
        assert process.wait(30) == 0

    assert "\r\x1b[K[1/3] semantics.replay-effect" in seen
    assert "\x1b[32mok\x1b[0m" in seen
    assert "network.chunked does not apply" in seen


def _drained(terminal: int) -> str:
    seen = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # The other end is closed.
            break
        if not piece:
            break
        seen += piece
    os.close(terminal)
    return seen.decode()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("success = 201", "success = 200"), "POST /payments was answered 201, which is not in request.success"),
        (("/count?order=order-{unique}", "/count?order=fixed"), "succeeded and the counter did not move"),
        (("/count?order=order-{unique}", "/nowhere"), "answers 404; it must answer 200"),
        (('"count"', '"number"'), "effects.json_path: the answer has no 'number'"),
        (("/count?order=order-{unique}", "http://127.0.0.1:1/"), "does not count: no connection"),
        (("/count?order=order-{unique}", "ftp://x"), "effects.url: 'ftp://x' is not a URL"),
        (('url = "/count?order=order-{unique}"', 'command = ["false"]'), "effects.command: false ended with status 1"),
        (('url = "/count?order=order-{unique}"', 'command = ["no-such-program"]'), "no-such-program cannot be run"),
        (('url = "/count?order=order-{unique}"', 'command = ["echo", "many"]'), "gives no number and no JSON"),
    ],
)
def test_a_kit_that_cannot_work_says_why_before_it_begins(change: tuple[str, str], complaint: str) -> None:
    assert change[0] in SHOP_TOML
    operation = parse_operation(tomllib.loads(SHOP_TOML.replace(*change)), {})

    with open_shop(Shop()) as url, pytest.raises(ConfigError) as caught:
        asyncio.run(run(operation, url, CHECKS))

    [fault] = caught.value.faults
    assert complaint in fault


def test_an_api_that_does_not_answer_is_named(op: Path, free_port: int) -> None:
    counted = SHOP_TOML.replace('url = "/count?order=order-{unique}"', 'command = ["echo", "0"]')
    op.write_text(counted.replace('json_path = "count"', ""))

    outcome = nebis("torture", f"http://127.0.0.1:{free_port}", "--op", str(op))

    assert outcome.status == 2
    assert f"http://127.0.0.1:{free_port} does not answer: no connection" in outcome.stderr


def test_a_wrong_command_line_ends_with_2() -> None:
    outcome = nebis("torture", "http://x", "--only", "semantics.nothing", "--group", "nothing")

    assert outcome.status == 2
    assert "there is no check 'semantics.nothing'; --list shows them; there is no group 'nothing'" in outcome.stderr


def test_a_command_line_that_names_no_api_ends_with_2() -> None:
    outcome = nebis("torture")

    assert outcome.status == 2
    assert "name the API and the operation" in outcome.stderr


def test_the_checks_are_listed_by_group() -> None:
    outcome = nebis("torture", "--list", "--group", "security")

    assert outcome.status == 0
    assert len(outcome.stdout.splitlines()) == 10
    assert "security.lookup        critical  Another tenant's id is an unknown id (SEC01 SEC07)" in outcome.stdout


def test_the_page_shows_the_file_of_the_reference_service() -> None:
    [shown] = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)

    assert shown == SAMPLE.read_text()
