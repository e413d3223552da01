"""The docs are true: code runs and prints what they show, links lead somewhere, tables and words are as they should be.

python tests/test_docs.py    prints the words of every page, and the peculiar words that are left
"""

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import episafe
from episafe.algorithms import registered_agents
from episafe.cli import app

ROOT = Path(__file__).parent.parent
MADE = {"_build", "api"}  # folders of pages that a build makes
PAGES = sorted([*ROOT.glob("*.md"), *(one for one in ROOT.glob("docs/**/*.md") if not MADE & set(one.parts))])
MOST_WORDS = {"README.md": 700, "CHANGELOG.md": 600, "docs": 25_000, "decision": 300, "terms": 30, "decisions": 10}
BLOCK = re.compile(r"^```(python|text)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# words that make a text sound translated: none of them may stand in src or docs
PECULIAR = re.compile(
    r"\b(nobody|somebody|whoever|whatever|anew|mend(s|ed|ing)?|alike|go(es)? on|went on|witness(es)?|luck(y)?|life|"
    r"room(s|ier)?|bears?|books?|trails?|walks?|coins?|toss(ed|es)?|lived through|all that (is|was|had)|who asks|"
    r"what acts|heed(s|ed)?|said|borne|hears?|bring_back|(count|stay)s? at (its|their) worst|chance br(ings|ought))\b",
    re.IGNORECASE,
)


def names_of(pages):
    return [page.relative_to(ROOT).as_posix() for page in pages]


def parts_of(text):
    """Return the python blocks of a page, each with the text block that follows it at once, which is its output."""
    parts, end = [], 0
    for found in BLOCK.finditer(text):
        if found[1] == "python":
            parts.append([found[2], None])
        elif parts and not text[end : found.start()].strip():
            parts[-1][1] = found[2]
        end = found.end()
    return parts


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def agrees(shown, printed):
    """Return whether an output is the same but for numbers that differ by at most a tenth."""
    if NUMBER.sub("0", shown) != NUMBER.sub("0", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(abs(float(a) - float(b)) <= 0.1 * max(float(a), float(b)) for a, b in pairs)


RUNNABLE = [page for page in PAGES if parts_of(page.read_text())]


@pytest.mark.parametrize("name", names_of(RUNNABLE))
def test_the_code_of_a_page_runs_from_top_to_bottom_and_prints_what_the_page_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    scope = {"__name__": "page"}
    for number, (code, expected) in enumerate(parts_of((ROOT / name).read_text())):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(code, f"{name}, block {number}", "exec"), scope)
        if expected is not None:
            assert agrees(expected, said.getvalue()), (
                f"{name}, block {number} prints\n{said.getvalue()}and the page shows\n{expected}"
            )


def modules():
    found = pkgutil.walk_packages(episafe.__path__, "episafe.")
    return [one.name for one in found if not one.name.endswith("__main__")]


def test_the_examples_in_docstrings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    number = 0
    for name in modules():
        tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert tried.failed == 0, name
        number += tried.attempted
    assert number > 10


def slug(heading):
    """Return the anchor that MyST and GitHub give a heading."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\(([\w-]+)\)=", text, re.MULTILINE)
    return {*map(slug, re.findall(r"^#+ (.*)$", text, re.MULTILINE)), *named}


def test_links_lead_to_files_and_headings():
    broken = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([\w-]+))?\)", page.read_text()):
            found = page.parent / target if target else page
            if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found.read_text())):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert broken == []


def test_commands_on_the_pages_exist():
    commands, unknown = get_command(app).commands, []
    for page in PAGES:
        text = page.read_text()
        blocks = "".join(re.findall(r"^```(?:bash|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        lines = [*blocks.splitlines(), *re.findall(r"^ {4}(.*)$", text, re.MULTILINE)]
        for line in re.findall(r"^\$? ?episafe (.*)$", "\n".join(lines), re.MULTILINE):
            words = shlex.split(line.replace("…", "x"), comments=True)
            options = {name for one in commands[words[0]].params for name in one.opts} if words[0] in commands else {}
            unknown += [f"{page.name}: {line}"] if words[0] not in commands else []
            unknown += [f"{page.name}: {word}" for word in words[1:] if word[:2] == "--" and word not in options]
    assert unknown == []


def test_names_in_the_paper_map_exist():
    names = re.findall(r"`(episafe\.[\w.]+)`", (ROOT / "docs/research/paper-map.md").read_text())
    assert len(names) > 25
    for name in names:
        pkgutil.resolve_name(name)


# every numbered item of the paper by its title, or by what it is about, and the section of the page that has its row
ITEMS = {
    "Problem": ["Linear MDP", "Mixture policy", "Safe policy"],
    "Algorithm 1": [
        "Safe policy", "Confidence bounds", "definition of 𝒰, theorem", "Mixture policy feasibility", "Zero-violation",
        "π_α optimism", "theorem on regret", "Good event 1", "Good event 2", "Cumulative bonus bound",
    ],
    "Algorithm 2": [
        "Clipped value functions", "Composite softmax policy", "Computational cost",
        "lemma on the error of the bisection",
    ],
    "Theory": [
        "Confidence bounds", "Zero-violation", "definition of 𝒰", "Implicit trigger", "Softmax value monotonicity",
        "Logarithmic bound", "Mixture policy", "Safe and optimistic mixture policy", "sensitivity of λ",
        "theorem on regret", "Can we do better?", "polylog", "distance metrics and ε-covers", "ball cover", "Danskin",
        "Rosenberg", "Abbasi-Yadkori", "Jin et al.", "Shalev-Shwartz", "Shani", "Sum of square roots",
        "Regularized value difference", "Softmax policy bound", "Good event 1", "Good event 2", "μ-estimator",
        "hP−P−V bound", "Q covers", "Composite Q cover", "Policy class", "π^{(k),λ} cover", "V function class",
        "V covers", "Remove clipping", "Q estimation gap", "Softmax policy with fixed δ", "Existence of feasible λ",
        "Bonus summation bound", "two parts", "Optimism in composite value function",
    ],
    "Experiments": ["does not apply to linear problems"],
}  # fmt: skip


def test_the_paper_map_has_every_numbered_item_of_the_paper():
    sections = (ROOT / "docs/research/paper-map.md").read_text().split("\n## ")[1:]
    for title, items in ITEMS.items():
        section = next(one for one in sections if one.startswith(title))
        assert [one for one in items if one not in section] == []


def test_the_page_of_agents_lists_every_agent():
    page = (ROOT / "docs/research/agents.md").read_text()
    for name, (facts, factory) in registered_agents().items():
        if not factory.__module__.startswith("episafe."):  # registered by another test
            continue
        row = f"| `{name}` | {facts.label} |"
        assert row in page, f"add to docs/research/agents.md: {row}"


def words_of(page):
    """Return how many words people read on a page: code, outputs, formulas and directives do not count."""
    text = re.sub(r"^(`{3,}).*?^\1$", " ", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"^ {4}.*$|\]\([^)]*\)|[|#*`>]", " ", text, flags=re.MULTILINE)
    return len(re.findall(r"\w[\w'’.,-]*", text))


def test_the_docs_are_short():
    for name in ("README.md", "CHANGELOG.md"):
        assert words_of(ROOT / name) <= MOST_WORDS[name], name
    counted = [page for page in PAGES if (ROOT / "docs") in page.parents and "appendix" not in page.parts]
    assert sum(map(words_of, counted)) <= MOST_WORDS["docs"]
    decisions = list(ROOT.glob("docs/contributing/decisions/*.md"))
    assert len(decisions) <= MOST_WORDS["decisions"]
    assert all(words_of(page) <= MOST_WORDS["decision"] for page in decisions)
    assert (ROOT / "docs/start/glossary.md").read_text().count("\n| ") - 1 <= MOST_WORDS["terms"]


def peculiar_words():
    texts = [
        *PAGES,
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.html"),
    ]
    return [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in texts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in PECULIAR.finditer(line)
    ]


def test_no_peculiar_word_is_left():
    assert peculiar_words() == []


if __name__ == "__main__":
    os.chdir(ROOT)
    for page, name in zip(PAGES, names_of(PAGES), strict=True):
        print(f"{words_of(page):6,}  {name}")
    print(*peculiar_words(), sep="\n", file=sys.stderr)
