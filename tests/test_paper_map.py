"""docs/paper-map.md names code and tests that exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "paper-map.md").read_text()
ROWS = re.findall(r"^\|[^|]+\| `(episafe\.[\w.]+)` \| `(\w+\.py)::(\w+)` \|$", PAGE, flags=re.MULTILINE)


def test_every_row_of_the_first_four_tables_is_read():
    rows = [line for line in PAGE.split("## Where paper")[0].splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(ROWS) > 25


@pytest.mark.parametrize("name", sorted({name for name, _, _ in ROWS}))
def test_the_code_exists(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        assert found.__doc__
        return
    raise AssertionError(f"nothing can be imported of {name}")


@pytest.mark.parametrize(("file", "test"), sorted({(file, test) for _, file, test in ROWS}))
def test_the_test_exists(file, test):
    functions = [
        node.name for node in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(node, ast.FunctionDef)
    ]
    assert test in functions
