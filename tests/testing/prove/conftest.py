from pathlib import Path

import pytest

from tests.testing.prove.checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout.create(tmp_path)
