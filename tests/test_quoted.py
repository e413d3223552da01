"""Each figure that is quoted can be made again, and the page that quotes it says how."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import quoted  # noqa: E402


def test_every_figure_is_named_where_it_is_quoted():
    pages = "".join(page.read_text() for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")))
    for name in quoted.QUOTED:
        assert f"benchmarks/quoted.py {name}" in pages


def test_the_script_says_a_rate_with_its_exact_interval():
    command = [sys.executable, str(ROOT / "benchmarks" / "quoted.py"), "sharing", "--problems", "2"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.count("0 of 2 violate; rate 0.0000 to 0.8419") == 4


def test_what_violates_is_counted_with_the_worst_first():
    runs = [quoted.Outcome(1.0, gap, False) for gap in (0.0, 0.5, 0.25, 0.0)]
    assert quoted.violations(runs) == "2 of 4 violate, by 0.5, 0.25; rate 0.0676 to 0.9324"
