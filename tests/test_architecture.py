"""The page that draws the house is true of it."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import size
import walks

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src/episafe"
PAGE = (ROOT / "docs/architecture.md").read_text()


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"(?:[\w]+/)*\w+\.py", PAGE))
    assert len(named) > 60
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("*/**/*.py")]
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_every_file_that_a_walk_passes_is_there():
    rows = re.findall(r"^\| [^|]* \| \d+ / \d+ \| (.*) \|$", PAGE, re.MULTILINE)
    passed = [
        f"{folder}{name.strip()}.py"
        for row in rows
        for folder, names in re.findall(r"`(\w+/)` ([\w, /]+)", row)
        for name in names.split(", ")
        if name.strip()
    ]
    assert len(rows) == 4 and len(passed) > 60
    assert [path for path in passed if not (HOUSE / path).exists() and not (HOUSE / path[:-3]).is_dir()] == []


def test_every_room_has_a_word_on_the_page():
    rooms = [path.parent.name for path in HOUSE.glob("*/__init__.py")]
    assert [room for room in rooms if f"**{room}/**" not in PAGE] == []


def test_no_walk_is_longer_than_the_page_says():
    said = [tuple(map(int, row)) for row in re.findall(r"^\| [^|]* \| (\d+) / (\d+) \|", PAGE, re.MULTILINE)]
    walked = [text for walk in (walks.simulate, walks.deploy, walks.environment) for text in walk()]
    found = [tuple(map(int, re.search(r"(\d+) files, (\d+) calls", text).groups())) for text in walked]
    longer = [
        f"{now} is more than {was} and a tenth" for was, now in zip(said, found, strict=True) if now[1] > 1.1 * was[1]
    ]
    assert longer == []  # if they have to be, `python benchmarks/walks.py --files` has the figures for the page


def test_kinds_of_problems_and_models_are_rarely_asked_for():
    assert size.counts(ROOT)["isinstance on problem and model types"] <= 15
