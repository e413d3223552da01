"""The docs are true: code blocks run, links lead somewhere, names exist, and generated tables are up to date."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from episafe.algorithms import registered_agents

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
RUNNABLE = ("README.md", "docs/start/quickstart.md", "docs/tutorials/own-system.md")


@pytest.mark.parametrize("page", RUNNABLE)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
        exec(compile(block, page, "exec"), scope)


def test_links_between_pages_lead_to_files():
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_names_in_the_paper_map_exist():
    names = re.findall(r"`(episafe\.[\w.]+)`", (ROOT / "docs/research/paper-map.md").read_text())
    assert len(names) > 25
    for name in names:
        resolve_name(name)


def test_the_page_of_agents_lists_every_agent():
    page = (ROOT / "docs/research/agents.md").read_text()
    for name, (facts, factory) in registered_agents().items():
        if not factory.__module__.startswith("episafe."):  # registered by another test
            continue
        row = f"| `{name}` | {facts.label} |"
        assert row in page, f"add to docs/research/agents.md: {row}"
