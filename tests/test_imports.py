"""What is imported for what: a command or a page does not wait for a compiler that it does not need."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "scipy", "matplotlib", "pandas", "gymnasium")


def imported(program):
    """The heavy packages that a program imports."""
    shown = f"{program}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("program", ["import episafe.cli", "import episafe as es; es.__version__"])
def test_what_only_says_something_imports_nothing_heavy(program):
    assert imported(program) == "[]"


def test_public_names_are_there_when_asked_for():
    program = "import episafe as es\nassert {'OPSE', 'bandits', 'open', 'envs'} <= set(dir(es))\n"
    program += "from episafe import *\nassert make is es.make and es.certify.Observation\n"
    program += "try:\n    es.nothing\nexcept AttributeError as error:\n    assert 'nothing' in str(error)"
    assert "numba" in imported(program)
