import subprocess
import sys

import pytest

EXTRAS = {
    "nats": ("nats", "nats"),
    "streams": ("redis", "redis"),
    "rabbitmq": ("aio_pika", "rabbitmq"),
    "kafka": ("confluent_kafka", "kafka"),
}


@pytest.mark.parametrize("folder", ["publishers", "sources"])
@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_library_names_its_extra(folder: str, module: str) -> None:
    library, extra = EXTRAS[module]
    script = f"import sys; sys.modules[{library!r}] = None; import nebis.messaging.{folder}.{module}"

    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert outcome.returncode == 1
    assert f"pip install 'nebis[{extra}]'" in outcome.stderr


def test_the_others_need_no_library() -> None:
    script = "import nebis.messaging.publishers.webhook, nebis.messaging.publishers.function, "
    script += "nebis.messaging.publishers.cloudevents, sys; print(sorted(set(sys.modules) & {'nats', 'redis', 'ssl'}))"

    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert outcome.stdout.strip() == "['ssl']"
