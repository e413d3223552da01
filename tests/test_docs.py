"""The documentation: links lead somewhere, every page is on the site, figures say how they are made, pages open."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest

import episafe as es

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]


def anchors(page):
    """What headings are linked by, as GitHub and the site make it."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), flags=re.M)
    plain = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_every_page_is_on_the_site():
    index = (ROOT / "docs" / "index.md").read_text()
    listed = set(re.findall(r"^([\w/-]+)$", index, flags=re.M))
    inside = [page.relative_to(ROOT / "docs") for page in PAGES if page.is_relative_to(ROOT / "docs")]
    pages = {str(page.with_suffix("")) for page in inside}
    own = {page for page in pages if not page.startswith(("decisions/0", "examples/")) and page != "index"}
    assert own - listed == set()


def test_every_figure_says_how_it_is_made_and_none_is_older_than_its_code_unseen(tmp_path, monkeypatch):
    made = tomllib.loads((ROOT / "docs" / "figures" / "made.toml").read_text())
    assert {path.name for path in (ROOT / "docs" / "figures").glob("*.png")} == set(made)
    spec = importlib.util.spec_from_file_location("figures", ROOT / "benchmarks" / "figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    drawing, computing = tmp_path / "drawing.py", tmp_path / "computing.py"
    drawing.write_text("x = 1")
    computing.write_text("y = 1")
    figures.ROOT = tmp_path
    one = {"drawn_by": ["drawing.py"], "computed_by": ["computing.py"], "runs": ["tabular fixed 3"], "bits": "then"}
    one |= {"drawn": figures.hash_of(["drawing.py"]), "computed": figures.hash_of(["computing.py"])}
    monkeypatch.setattr(figures, "bits_of", lambda runs: "now")
    drawing.write_text('"""In other words."""\n\nx = 1  # the same\n')
    assert not figures.is_older(one)  # nothing of it has changed
    computing.write_text("y = 2")
    assert figures.is_older(one)  # and its short runs come out otherwise
    assert figures.is_older({**one, "runs": []})
    monkeypatch.setattr(figures, "bits_of", lambda runs: "then")
    assert not figures.is_older(one)  # they come out the same: code was moved about
    drawing.write_text("x = 2")
    assert figures.is_older(one)


def test_short_runs_behind_a_figure_are_told_apart_by_what_comes_of_them():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "benchmarks" / "figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    assert figures.bits_of(["tabular incumbent 3"]) == figures.bits_of(["tabular incumbent 3"])
    assert figures.bits_of(["tabular incumbent 3"]) != figures.bits_of(["tabular uniform 3"])


def test_the_readme_is_short():
    assert len(re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.S).split()) <= 900


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing(tmp_path):
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "api.html").read_text()
    for name in es.__all__:
        assert f'id="episafe.{name}"' in api or not callable(getattr(es, name)), name
    assert ">Type<" not in api and "Whether every exact value is known: not so for problems" in api  # whole sentences
    assert "&lt;function" not in api and " at 0x" not in api  # defaults are as the source has them
    opened = 0
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', page.read_text()), page
        for link, picture in re.findall(r"(<a [^>]*>)?(<img [^>]*>(?:<span>[^<]*</span></a>)?)", page.read_text()):
            assert link, f"{page}: {picture} is no link"
            if "picture" in link:
                (to,), (source,) = re.findall('href="([^"]+)"', link), re.findall('src="([^"]+)"', picture)
                assert to == source and (page.parent / to).is_file(), f"{page}: {to}"
                assert picture.endswith("<span>Open the picture</span></a>"), f"{page}: {picture}"
                opened += 1
    assert opened >= len(list((ROOT / "docs" / "figures").glob("*.png"))) + len(NOTEBOOKS)


def test_a_picture_is_drawn_within_its_frame():
    from episafe.reports.pictures import Picture, Polyline, Scale

    x = np.arange(5.0)
    drawn = Picture("T", Scale.linear("x", 0, 4), Scale.linear("y", 0, 1), [Polyline(x, x / 4, "#0072B2", "up")]).svg()
    assert "<title>up</title>" in drawn and "var(--ink-0072B2,#0072B2)" in drawn
    assert "&lt;b&gt;" in Picture("<b>", Scale.linear("x", 0, 1), Scale.linear("y", 0, 1), []).svg()


def test_the_readme_shows_what_its_ten_lines_print():
    text = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        assert f"    {line}\n" in text, line
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _execute():
    """docs/notebooks/execute.py, as a module; what it needs is installed for `make slow`."""
    pytest.importorskip("nbclient")
    spec = importlib.util.spec_from_file_location("execute", ROOT / "docs" / "notebooks" / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _printed(cells):
    return ["".join(out["text"]) for cell in cells for out in cell.get("outputs", []) if out["output_type"] == "stream"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_source_and_what_they_showed(path):
    cells = json.loads(path.read_text())["cells"]
    source = path.with_suffix(".py").read_text()
    for cell in cells:
        lines = "".join(cell["source"]).splitlines()
        assert "\n".join(lines if cell["cell_type"] == "code" else [f"# {x}".rstrip() for x in lines]) in source
    shown = [out for cell in cells for out in cell.get("outputs", [])]
    assert any("image/png" in out.get("data", {}) for out in shown) and path.stat().st_size < 300_000
    assert not any(out["output_type"] == "error" for out in shown)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_shows(path):
    """Warnings of Jupyter's own machinery are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = _execute().executed(path.with_suffix(".py"))
    assert _printed(made.cells) == _printed(json.loads(path.read_text())["cells"])
