"""Without a library that an extra brings, the module that needs it says what to install."""

import subprocess
import sys

import pytest

# An import hook, because uninstalling the library is not for a test to do.
WITHOUT_LIBRARY = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
try:
    import {module}
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "library", "said"),
    [
        (
            "nebis.integrations.starlette",
            "starlette",
            "starlette is not installed. Run: pip install 'nebis[starlette]'",
        ),
        ("nebis.integrations.fastapi", "fastapi", "fastapi is not installed. Run: pip install 'nebis[fastapi]'"),
        ("nebis.integrations.fastapi", "starlette", "starlette is not installed. Run: pip install 'nebis[fastapi]'"),
        ("nebis.integrations.litestar", "litestar", "litestar is not installed. Run: pip install 'nebis[litestar]'"),
        ("nebis.integrations.flask", "flask", "flask is not installed. Run: pip install 'nebis[flask]'"),
        ("nebis.integrations.django.views", "django", "django is not installed. Run: pip install 'nebis[django]'"),
        ("nebis.integrations.drf", "rest_framework", "rest_framework is not installed. Run: pip install 'nebis[drf]'"),
        # What a library of the extra misses itself is not ours to explain.
        ("nebis.integrations.starlette", "anyio", "No module named 'anyio'"),
    ],
)
def test_a_missing_library_becomes_advice(module: str, library: str, said: str) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY.format(module=module, library=library)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert outcome.stdout == f"{said}\n"
