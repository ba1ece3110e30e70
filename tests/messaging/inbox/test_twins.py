"""Concurrent twins run once: in threads of one process, and in several processes (F111)."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from nebis import Done, Later
from nebis.delivery import Verdict
from tests.messaging.inbox.mortal import SCHEMA
from tests.messaging.inbox.offices import BlockingOffice, Office, delivery

TWINS = 6
PROGRAM = """
import sys, time
from nebis import Later
from tests.messaging.inbox.mortal import message, open_ledger
nebis, ledger = open_ledger(sys.argv[1], sys.argv[2], "guarded")
with nebis:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(20):
        while isinstance(verdict := ledger.handle(message(number, "guarded")), Later):
            time.sleep(min(verdict.after_seconds, 0.02))
        print(verdict.is_duplicate, flush=True)
"""


def test_twins_in_threads_run_once(office: Callable[..., Office]) -> None:
    opened = office()
    gate = threading.Barrier(TWINS)

    def deliver(_: int) -> Verdict:
        gate.wait()
        return opened.handle(delivery("m-1"))

    with ThreadPoolExecutor(TWINS) as threads:
        verdicts = list(threads.map(deliver, range(TWINS)))

    assert verdicts.count(Done(is_duplicate=False)) == 1
    assert all(
        isinstance(verdict, Later) or verdict == Done(is_duplicate=True)
        for verdict in verdicts
        if verdict != Done(is_duplicate=False)
    )
    assert len(opened.runs) == 1
    assert opened.mail.acts == ["p-1"]
    assert opened.parked() == []


def test_twins_in_processes_run_once(postgres_url: str, tmp_path: object) -> None:
    beside = BlockingOffice(postgres_url)
    beside.sql(SCHEMA)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, postgres_url, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    told = Counter(line for child in children for line in child.communicate("go\n")[0].split())

    assert told == {"False": 20, "True": 40}
    assert beside.sql("SELECT count(*), count(DISTINCT payment) FROM applied") == [(20, 20)]
    beside.close()
