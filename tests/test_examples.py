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

ROOT = Path(__file__).parent.parent
MODULES = [m.name for m in pkgutil.walk_packages(episafe.__path__, "episafe.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(script, tmp_path):
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


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


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/bandits.md"])
def test_python_on_the_page_runs_as_it_stands(page, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
