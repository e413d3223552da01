"""Every recipe runs as it stands: the blocks of a page, one after another, as one program in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parent.parent / "docs" / "recipes"
PAGES = sorted(path for path in RECIPES.glob("*.md") if path.name != "README.md")
WALK = RECIPES.parent / "production.md"
BLOCK = re.compile(r"```python(?: stand-in)?\n(.*?)```", re.S)  # a stand-in is for a library that is not here


@pytest.mark.parametrize("page", [*PAGES, WALK], ids=lambda page: page.stem)
def test_a_recipe_runs_as_it_stands(page, tmp_path):
    for name, text in re.findall(r"```python file=(\S+)\n(.*?)```", page.read_text(), re.S):
        (tmp_path / name).write_text(text)
    program = tmp_path / "recipe.py"
    program.write_text("\n".join(BLOCK.findall(page.read_text())))
    done = subprocess.run([sys.executable, "-W", "error", program.name], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_recipe_is_listed():
    index = (RECIPES / "README.md").read_text()
    assert [page.name for page in PAGES if f"({page.name})" not in index] == []
