"""What the documentation shows runs as it stands: examples, doctests, the README."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import episafe

REAL = ("inventory", "battery", "cloud", "continuous", "limits")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/bandits.md", "docs/loop.md", "docs/examples/README.md")
ROOT = Path(__file__).parent.parent
MOVED = ("__main__", "runs.checkpoint")  # the second warns that it has moved
MODULES = [m.name for m in pkgutil.walk_packages(episafe.__path__, "episafe.") if not m.name.endswith(MOVED)]


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(script, tmp_path):
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if script.stem in REAL:
        assert (tmp_path / f"{script.stem}.png").stat().st_size > 10_000
        assert "theorem" in done.stdout


@pytest.mark.parametrize("name", REAL)
def test_the_real_examples_are_short_and_have_a_page_with_their_picture(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 80
    page = (ROOT / "docs" / "examples" / f"{name}.md").read_text()
    assert f"../figures/{name}.png" in page
    assert (ROOT / "docs" / "figures" / f"{name}.png").is_file()


def test_the_first_loop_has_15_lines():
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "loop.md").read_text(), flags=re.DOTALL)
    assert len([line for line in block[1].splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0
    assert module.__doc__


def test_some_module_has_doctests():
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) >= 10


def test_every_public_name_is_documented():
    for name in episafe.__all__:
        assert getattr(episafe, name).__doc__, name


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/bandits.md",
        "docs/loop.md",
        "docs/testing.md",
        "docs/data.md",
        "docs/sweeps.md",
        "docs/five-minutes.md",
        "docs/guarantees.md",
        "docs/running.md",
        "docs/reports.md",
        "docs/dashboard.md",
        "docs/examples/README.md",
        "docs/own-environment.md",
    ],
)
def test_python_on_the_page_runs_as_it_stands(page, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
