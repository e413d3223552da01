"""Figures and pages: they say what is true, in the user's units, and need no network."""

import re

import numpy as np
import pytest

import episafe as es
from episafe.core.types import Unit
from episafe.lab.benchmark import Row
from episafe.report import figures
from episafe.report.pages import benchmark_page, comparison_page, run_page, write_report
from episafe.report.verdict import percent, verdict
from episafe.simulation.record import History, Record

K = 300
UNKNOWN = np.full(K, np.nan)


def record(below=0, agent="safe", seed=0, **columns):
    rng = np.random.default_rng(seed)
    rewards = np.linspace(5.0, 6.5, K) + 0.01 * rng.random(K)
    utilities = np.full(K, 12.9)
    utilities[1 : 1 + below] = 12.0
    settings = {"env": "inventory", "agent": agent, "level": "theorem", "delta": 0.05, "incumbent_reward": 5.0}
    settings |= {"units": {"utility": ["days served"], "reward": ["euros"]}, "setting": agent}
    settings |= {"statement": "every deployed plan keeps the limit"}
    facts = {
        "reward_values": rewards,
        "utility_values": utilities,
        "sources": np.where(np.arange(K) < 20, "safe", "search"),
        "lams": UNKNOWN,
        "bounds": np.full(K, 12.6),
        "plan_ids": np.arange(K),
        "optimum": 7.0,
        "threshold": 12.6,
        "settings": settings,
    }
    return Record(**{**facts, **columns})


def mixed(utility_of_new=12.0):
    """A run in which half of the episodes drew a candidate."""
    acting = np.arange(K) % 2
    bounds = np.array([[[13.3], [np.nan]], [[13.3], [11.0]]])
    return record(
        components=acting.astype(np.int64), weights=np.full((K, 2), 0.5), acting_numbers=acting.astype(np.int32),
        acting_names=("incumbent", "new"), acting_utilities=np.array([[13.8], [utility_of_new]]),
        history=History(np.array([1, K]), ("incumbent", "new"), bounds, np.array([[1.0, 0.0], [0.5, 0.5]])),
    )  # fmt: skip


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_the_verdict_is_one_sentence_about_deployed_policies():
    assert verdict(record()) == (
        "Safe: by exact values none of the 300 deployed policies was below the limit of 12.6 days served; expected "
        "reward rose from 5 to 6.433 euros, 72 % of the way to the optimum."
    )
    assert verdict(record(below=7)).startswith("Unsafe: by exact values 7 of the 300 deployed policies were below")
    assert "stayed at 5" in verdict(record(reward_values=np.full(K, 5.0)))
    totals = np.linspace(12, 14, K)
    seen = record(reward_values=UNKNOWN, utility_values=UNKNOWN, reward_totals=totals / 2, utility_totals=totals)
    assert verdict(seen) == (
        "The last 30 of 300 episodes had mean utility 13.9 (limit: at least 12.6 days served) and mean reward 6.952 "
        "euros; exact values are unknown."
    )


def test_a_share_is_0_or_100_per_cent_only_if_it_is():
    assert [percent(x) for x in (0, 1, 0.5, 0.001, 0.9999)] == ["0 %", "100 %", "50 %", "0.10 %", "99.99 %"]


def test_the_page_of_a_run_has_units_confidence_and_no_network():
    page = run_page(record())
    said = text_of(page)
    assert "expected utility per episode at least 12.6 days served" in said and "euros" in said
    assert "with 95 % confidence, if the assumptions hold" in said
    assert "Every deployed plan keeps the limit." in said
    assert not re.search(r'(src|href)="(https?:)?//', page) and "<script" not in page
    assert len(page.encode()) < 1_000_000
    heuristic = record(settings={"agent": "opse", "level": "heuristic"})
    assert "nothing is proved" in text_of(run_page(heuristic)) and "95 %" not in text_of(run_page(heuristic))


def test_the_page_shows_what_moved_and_calls_the_incumbent_assumed():
    said = text_of(run_page(mixed()))
    assert "Why the plans were allowed" in said and "incumbent (assumed)" in said and "new" in said
    assert "Probability that a learned policy acts" in said
    assert "In 50 % of the episodes the acting component, taken alone, is beyond a limit" in said
    assert "In no episode the acting component, taken alone," in text_of(run_page(mixed(utility_of_new=13.0)))
    assert "Why the plans were allowed" not in text_of(run_page(record()))


def test_unknown_values_are_shown_by_totals_and_their_spread(rng):
    totals = 12.9 + rng.normal(size=K)
    shown = record(reward_values=UNKNOWN, utility_values=UNKNOWN, reward_totals=totals / 2, utility_totals=totals)
    said = text_of(run_page(shown))
    share = np.mean(totals < 12.6)
    assert f"{100 * share:.0f} % of the episode totals are below the limit, which applies to their expectation" in said
    assert "exact values are unknown" in said


def test_a_cost_is_shown_as_the_user_states_it():
    """The limit "at most 2 hot steps of 20" is one on utilities, at least 18: no page says so."""
    units = {"cost": ["hot steps", 20.0, -1.0], "reward": ["euros", 0.0, 10.0]}
    settings = {"limit": "cost", "units": units, "incumbent_reward": 5.0, "level": "theorem", "agent": "safe"}
    hot = record(settings=settings, threshold=18.0, utility_values=np.full(K, 18.9))
    assert verdict(hot) == (
        "Safe: by exact values none of the 300 deployed policies was above the limit of 2 hot steps; expected reward "
        "rose from 50 to 64.33 euros, 72 % of the way to the optimum."
    )
    said = text_of(run_page(hot))
    assert "Limit: expected cost per episode at most 2 hot steps." in said and "highest expected cost 1.1" in said
    assert "limit: at most" in said
    totals = figures.totals_figure(np.array([18.0, 20.0]), 18.0, "cost", hot.unit("cost"))
    assert totals.axes[0].lines[0].get_xdata()[0] == 2.0


def test_names_are_escaped():
    page = run_page(record(settings={"agent": "<b>x</b>", "units": {"utility": ["<i>€</i>"]}}))
    assert "<b>x</b>" not in page and "<i>" not in page


def test_svg_text_is_text_and_follows_the_colour_of_the_page():
    svg = figures.to_svg(figures.run_figure(mixed()))
    assert ">Expected reward per episode<" in svg and "currentColor" in svg and figures.TEXT not in svg
    assert svg == figures.to_svg(figures.run_figure(mixed()))  # the same page for the same record
    assert not re.search(r' d="[^"]*\.\d{3}', svg)
    named = figures.to_svg(figures.benchmark_figure([row("mine bonus=0.0012")], []))
    assert "mine bonus=0.0012" in named  # numbers in text keep their digits


def test_record_plot_is_the_figure_of_the_page_with_a_panel_per_limit():
    two = np.column_stack([np.full(K, 12.9), np.full(K, 3.0)])
    shown = record(
        utility_values=two, bounds=two, threshold=np.array([12.6, 2.0]), constraint_names=("service", "budget")
    )
    titles = [axes.get_title(loc="left") for axes in shown.plot().axes]
    assert [title.split("\n")[0] for title in titles] == [
        "Expected reward per episode", "Expected service per episode", "Expected budget per episode",
        "Which policy acted, share of the episodes",
    ]  # fmt: skip
    assert shown.plot()._repr_png_().startswith(b"\x89PNG")
    assert "lowest expected budget" in run_page(shown)


def test_policies_keep_their_colour_in_all_figures_of_a_run():
    shown = mixed()
    colour = figures.policy_colours(shown)["new"].lower()
    for figure in (figures.acting_figure(shown), figures.allowed_figure(shown)):
        assert colour in figures.to_svg(figure).lower()
    assert colour != figures.RED.lower()  # that of the limit


def test_a_comparison_groups_runs_by_agent_and_names_those_that_broke_the_limit():
    runs = [record(agent=agent, seed=s, below=3 * (agent == "ghosh")) for agent in ("safe", "ghosh") for s in (0, 1)]
    page = comparison_page(runs, "mine")
    assert "4 runs of 2 agents on one environment." in page
    assert "safe kept the limit with every deployed policy; ghosh did not." in page
    rows = re.findall(r"<tr><td>(.*?)</td>.*?<td class=\"number (bad)?\s*\">(\d+)</td>", page)
    assert rows == [("safe", "", "0"), ("ghosh", "bad", "2")]


def test_a_comparison_without_exact_values_shows_means_of_totals():
    totals = np.full(K, 13.0)
    seen = {"reward_values": UNKNOWN, "utility_values": UNKNOWN, "reward_totals": totals / 2, "utility_totals": totals}
    runs = [record(agent=agent, **seen) for agent in ("safe", "mine")]
    said = text_of(comparison_page(runs, "own"))
    assert "Exact values are unknown" in said and "mean reward at the end" in said and "6.5" in said and "13" in said
    with pytest.raises(es.InvalidProblem, match="run the sweep first"):
        comparison_page([], "none")


def row(agent, **changes):
    facts = {
        "set": "tabular",
        "agent": agent,
        "episodes": 1000,
        "problems": 5,
        "active": 4,
        "violating": 0,
        "level": "heuristic",
    }
    facts |= {"violating_share": 0.0, "acting_below": 0.1, "incumbent": 0.2, "seconds": 0.5, "half_way": 50.0}
    regret = changes.pop("regret", 0.4)
    facts |= {"regret": regret, "regret_low": regret - 0.1, "regret_high": regret + 0.1}
    return Row(**(facts | changes))


def test_the_benchmark_page_puts_the_reference_beside_and_warns_of_other_lengths():
    reference = [row("safe", regret=0.3), row("ghosh", violating=5, violating_share=0.9, regret=0.0)]
    page = benchmark_page([row("mine")], reference, "bench-1", {})
    assert page.index(">mine<") < page.index(">safe<") and 'class="own"' in page and "do not compare" not in page
    assert "do not compare their regret" in benchmark_page([row("mine", episodes=20)], reference, "bench-1", {})
    assert "changes the optimum of 4 of 5 problems" in page
    assert "never" in benchmark_page([row("mine", half_way=float("inf"))], [], "bench-1", {})


def test_write_report_finds_out_what_a_folder_holds(tmp_path):
    record().save(tmp_path / "run")
    assert write_report(tmp_path / "run").name == "report.html"
    record().save(tmp_path / "sweep" / "records" / "one")
    assert "inventory" in write_report(tmp_path / "sweep").read_text()
    with pytest.raises(es.InvalidProblem, match="give the folder of a run, a sweep or a session"):
        write_report(tmp_path)


def test_the_evidence_of_a_session_is_drawn_from_its_steps():
    bounds = {"incumbent": [(0, 13.3)], "new": [(0, 0.0), (40, 8.0)]}
    drawn = figures.evidence_figure(bounds, 12.6, [0.0] * 30 + [0.3] * 30, Unit("days"))
    assert [axes.get_title(loc="left") for axes in drawn.axes] == [
        "Proved lower bound of each policy\ndays",
        "Probability that a learned policy acts",
    ]
    line = next(one for one in drawn.axes[0].lines if one.get_label() == "new")
    assert line.get_xydata().tolist() == [[0, 0.0], [40, 8.0], [60, 8.0]]
