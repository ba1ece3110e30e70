"""Plants one bug into a test run: `pytest -p tests.planted.plugin` with its name in the environment."""

import os

from tests.planted.bugs import BUGS
from tests.planted.plugin_name import VARIABLE

for _bug in BUGS:
    if _bug.name == os.environ[VARIABLE]:
        assert _bug.plant is not None, "this bug lives in the model only"
        _bug.plant()
