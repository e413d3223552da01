"""Figures and pages: they say what is true, in the user's units, and need no network."""

import re

import numpy as np
import pytest

from episafe.core.errors import InvalidProblem
from episafe.report import figures
from episafe.report.pages import comparison_page, run_page, verdict, write_report
from episafe.simulation.record import Record

K = 300


def record(below=0, agent="safe", seed=0, **columns):
    rng = np.random.default_rng(seed)
    rewards = np.linspace(5.0, 6.5, K) + 0.01 * rng.random(K)
    rewards[0] = 5.0
    utilities = np.full(K, 12.9)
    utilities[1 : 1 + below] = 12.0
    settings = {
        "env": "inventory",
        "agent": agent,
        "level": "theorem",
        "delta": 0.05,
        "unit_utility": "units of demand",
    }
    settings |= {"statement": "Every deployed plan keeps the limit.", "setting": agent}
    facts = {
        "reward_values": rewards,
        "utility_values": utilities,
        "sources": np.where(np.arange(K) < 20, "safe", "search"),
        "lams": np.full(K, np.nan),
        "bounds": np.full(K, 12.6),
        "plan_ids": np.arange(K),
        "optimum": 7.0,
        "threshold": 12.6,
        "settings": settings,
    }
    return Record(**{**facts, **columns})


def test_the_verdict_speaks_of_deployed_policies():
    assert verdict(record()) == (
        "None of the 300 deployed policies was below the limit (exact values). Expected reward went from 5 to 6.433, "
        "72% of the way to the optimum."
    )
    assert "7 of 300 deployed policies were below the limit" in verdict(record(below=7))


def test_the_page_of_a_run_has_units_confidence_and_no_network():
    page = run_page(record())
    assert "units of demand" in page
    assert "95% confidence, if the assumptions hold" in page
    assert "Every deployed plan keeps the limit." in page
    assert not re.search(r'(src|href)="https?://', page)
    assert len(page) < 1_000_000


def test_unknown_values_are_shown_by_totals_and_their_spread():
    rng = np.random.default_rng(0)
    unknown = np.full(K, np.nan)
    totals = 12.9 + rng.normal(size=K)
    shown = record(reward_values=unknown, utility_values=unknown, reward_totals=totals / 2, utility_totals=totals)
    page = run_page(shown)
    share = np.mean(totals < 12.6)
    assert f"{share:.0%} of the episode totals are below the limit, which applies to their expectation" in page
    assert "Exact values are unknown" in page


def test_svg_text_is_text_and_follows_the_colour_of_the_page():
    svg = figures.to_svg(figures.run_figure(record()))
    assert "<text" in svg and "currentColor" in svg and figures.TEXT not in svg
    assert svg == figures.to_svg(figures.run_figure(record()))


def test_several_limits_have_a_panel_each():
    two = np.column_stack([np.full(K, 12.9), np.full(K, 3.0)])
    shown = record(
        utility_values=two, bounds=two, threshold=np.array([12.6, 2.0]), constraint_names=("service", "budget")
    )
    assert len(figures.run_figure(shown).axes) == 4
    assert "lowest expected budget" in run_page(shown)


def test_a_comparison_groups_runs_by_agent():
    runs = [
        record(agent=agent, seed=seed, below=3 * (agent == "ghosh")) for agent in ("safe", "ghosh") for seed in (0, 1)
    ]
    page = comparison_page(runs, "mine")
    assert "4 runs on 1 problem." in page
    rows = re.findall(r"<tr><td>(.*?)</td>.*?<td class=\"number (bad)?\s*\">(\d+)</td>", page)
    assert rows == [("safe", "", "0"), ("ghosh", "bad", "2")]


def test_write_report_finds_out_what_a_folder_holds(tmp_path):
    record().save(tmp_path / "run")
    assert write_report(tmp_path / "run").name == "report.html"
    record().save(tmp_path / "sweep" / "records" / "one")
    assert "inventory" in write_report(tmp_path / "sweep").read_text()
    with pytest.raises(InvalidProblem, match="give the folder of a run, a sweep or a session"):
        write_report(tmp_path)


def test_evidence_policy_and_totals_figures(rng):
    drawn = figures.evidence_figure(
        {"incumbent": [(0, 13.3)], "new": [(0, 0.0), (40, 8.0)]}, 12.6, [0.0] * 30 + [0.3] * 30
    )
    assert [axes.get_title(loc="left") for axes in drawn.axes] == [
        "Proved lower bound of each policy",
        "Probability that a learned policy acts",
    ]
    tables = rng.dirichlet(np.ones(3), size=(2, 4, 5))
    heat = figures.policy_figure(tables[0], tables[1], [f"stock {s}" for s in range(5)], ["a", "b", "c"])
    assert "stock 3" in figures.to_svg(heat)
