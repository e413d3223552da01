"""What is imported for what: a command or a page does not wait for a compiler that it does not need."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from episafe.reports.pictures import round_numbers

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


def test_axes_have_the_round_numbers_of_the_drawing_library():
    from matplotlib.ticker import MaxNLocator

    rng = np.random.default_rng(0)
    for low, high, most in zip(
        rng.normal(size=200), 10 ** rng.uniform(-2, 5, 200), rng.integers(4, 7, 200), strict=True
    ):
        high, slack = low + high, 1e-9 * high
        due = [
            x for x in MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high) if low - slack <= x <= high + slack
        ]
        np.testing.assert_allclose(round_numbers(low, high, int(most)), due, rtol=1e-12, atol=1e-12)
    assert round_numbers(2.0, 2.0, 5) == [2.0] and round_numbers(0.0, np.inf, 5) == round_numbers(np.nan, 1.0, 5) == []


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[1].glob("[be]*/*.py")), ids=lambda path: path.name)
def test_benchmarks_and_examples_import_what_there_is(path):
    """One of them asked for a colour that was gone, and nobody knew until it was run."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("episafe"):
            for name in node.names:
                found = importlib.import_module(node.module)
                assert hasattr(found, name.name) or importlib.import_module(f"{node.module}.{name.name}")
