"""Reports from hand-made records: every number here was worked out by hand."""

import csv
import dataclasses
import io
import math
import re

import numpy as np
import pytest

import episafe as es
from episafe.errors import DamagedFile
from episafe.learning.transition_counts import Radius
from episafe.reports import findings
from episafe.reports.labels import label, replanning, styles
from episafe.reports.metrics import GRID, Interval, curves, summarise
from episafe.reports.panels import MOST_LINES, REMARK_LINES, REMARK_WIDTH, charts
from episafe.reports.paper_figures import file_stem, write_figures
from episafe.reports.pictures import with_minus
from episafe.reports.record_groups import software
from episafe.reports.report import write_report
from episafe.reports.report_page import to_html
from episafe.reports.tables import number, plus_minus, to_csv, to_markdown
from episafe.runs.record import Record

# 0.975 quantile of Student's t with 2 degrees of freedom: α√(2/(1 − α²)) at α = 0.95, 4.303 in printed tables
T_2 = 0.95 * math.sqrt(2 / (1 - 0.95**2))
OPTIMUM, THRESHOLD = 2.0, 1.0


def record(reward_values, utility_values=None, sources="search", plan_ids=None, **settings):
    K = len(reward_values)
    return Record(
        np.array(reward_values, dtype=np.float64),
        np.full(K, 1.5) if utility_values is None else np.array(utility_values, dtype=np.float64),
        np.array([sources] * K if isinstance(sources, str) else sources, dtype="U6"),
        lams=np.full(K, np.nan),
        utility_bounds=np.full(K, np.nan),
        plan_ids=np.arange(K) if plan_ids is None else np.array(plan_ids),
        optimum=OPTIMUM,
        threshold=THRESHOLD,
        settings=settings,
    )


def opse(reward_values, *args, **settings):
    known = {"env": "tabular", "variant": "released", "agent": "opse", "replan": "Every()", "level": "heuristic"}
    return record(reward_values, *args, **{**known, **settings})


def a_comparison(num_runs=3):
    """Three runs each, or more: OPSE and DOPE safe, Ghosh and the uniform policy not; DOPE replans rarely."""
    records = []
    for seed in range(num_runs):
        at = {"seed": seed, "run_seed": seed, "seconds": 2.0, "numpy_version": "2.4.6"}
        records += [
            opse([1.0 + seed / 10] * 50, [1.2] * 50, ["safe"] * 10 + ["search"] * 40, **at),
            opse([2.1] * 50, [0.9] * 50, agent="ghosh", **at),
            opse([0.9] * 50, [1.3] * 50, "safe", agent="dope", replan="Doubling(growth=0.3)", **at),
            record([0.5] * 50, [0.4] * 50, "fixed", env="tabular", variant="released", agent="uniform", **at),
        ]
    return records


def test_mean_and_t_interval_are_the_closed_form_of_three_runs():
    interval = Interval.over([1.0, 2.0, 3.0])  # mean 2, standard deviation 1
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(T_2 / math.sqrt(3), rel=1e-12)
    assert pytest.approx(4.303, abs=5e-4) == T_2


def test_one_run_has_a_mean_and_no_interval():
    interval = Interval.over([5.0])
    assert interval.mean == 5.0
    assert math.isnan(interval.half_width)


def test_metrics_of_three_runs_by_hand():
    """Utilities 0.5, 1.75, 0.75 against 1: hard violation 0.5 + 0.25, cancelling max{0.5 − 0.75 + 0.25, 0} = 0."""
    runs = [
        opse([1.0, 2.0, 2.0], [0.5, 1.75, 0.75], ["safe", "search", "search"], [0, 1, 1], seconds=1.5),
        opse([0.0, 2.0, 2.0], [1.0, 1.0, 1.0], ["safe", "safe", "search"], [0, 1, 2], seconds=1.5),
        opse([2.0, 2.0, -1.0], [1.0, 0.0, 1.0], ["search"] * 3, [0, 0, 0], seconds=1.5),
    ]
    (summary,) = summarise(runs)
    assert (summary.num_runs, summary.num_episodes) == (3, 3)
    assert summary.regret.mean == 2.0
    assert summary.regret.half_width == pytest.approx(T_2 / math.sqrt(3))  # regrets 1, 2, 3
    assert summary.violation.mean == pytest.approx((0.75 + 0 + 1) / 3)
    assert summary.cancelling_violation.mean == pytest.approx((0 + 0 + 1) / 3)
    assert summary.violating_episodes.mean == pytest.approx((2 + 0 + 1) / 3)
    assert (summary.total_violating_episodes, summary.violating_runs) == (3, 2)
    assert summary.worst_violation.mean == pytest.approx((0.5 + 0 + 1) / 3)
    assert summary.largest_violation == 1.0
    assert summary.incumbent_episodes.mean == pytest.approx((1 + 2 + 0) / 3)
    assert summary.plans.mean == pytest.approx((2 + 3 + 1) / 3)
    assert summary.episodes_per_second == Interval(2.0, 0.0)


def test_rounding_is_no_violation_and_anything_larger_is():
    (rounded,) = summarise([opse([2.0] * 2, [1.0 - 1e-13, 1.0])])
    (real,) = summarise([opse([2.0] * 2, [1.0 - 1e-8, 1.0])])
    assert (rounded.total_violating_episodes, real.total_violating_episodes) == (0, 1)


def test_regret_below_zero_stays_below_zero():
    (summary,) = summarise([opse([2.5, 2.5, 2.5], agent="ghosh")])
    (of,) = curves([opse([2.5, 2.5, 2.5], agent="ghosh")])
    assert summary.regret.mean == -1.5
    assert of["regret"].mean.tolist() == [-0.5, -1.0, -1.5]
    assert "-1.5" in to_markdown([summary])


def test_order_is_the_papers_whatever_the_order_of_the_records():
    wanted = [
        ("tabular", "released", "opse"),
        ("tabular", "released", "ghosh"),
        ("tabular", "released", "dope"),
        ("tabular", "released", "uniform"),
        ("tabular", "released", "incumbent"),
        ("tabular", "released", "another"),
        ("tabular", "text", "opse"),
        ("streaming", "released", "dope"),
        ("linear", "released", "opse"),
        ("problem", "", "agent"),
    ]
    shuffled = [wanted[i] for i in (9, 3, 7, 0, 5, 8, 2, 6, 1, 4)]
    records = [
        record([1.0], env=env, variant=variant, agent=agent) if variant else record([1.0])
        for env, variant, agent in shuffled
    ]
    assert [(s.group.env, s.group.variant, s.group.agent) for s in summarise(records)] == wanted


def test_replanning_and_level_make_rows_of_their_own():
    records = [opse([1.0]), opse([1.0], replan="Doubling(growth=0.3)"), opse([1.0], level="theorem")]
    summaries = summarise(records)
    assert [label(summary) for summary in summaries] == [
        "OPSE-LCMDP (heuristic)",
        "OPSE-LCMDP (theorem)",
        "OPSE-LCMDP (heuristic, replans by Doubling(0.3))",
    ]
    assert len(set(styles(summaries))) == 3
    assert len({style.colour for style in styles(summaries)}) == 1


def test_an_agent_looks_the_same_in_every_figure():
    records = [
        opse([1.0], env=env, agent=agent) for env in ("tabular", "linear") for agent in ("mine", "opse", "ghosh")
    ]
    looks = {}
    for summary, style in zip(summarise(records), styles(summarise(records)), strict=True):
        looks.setdefault(summary.group.agent, set()).add((style.colour, style.dash))
    assert all(len(found) == 1 for found in looks.values())
    assert len(set.union(*looks.values())) == 3


def test_only_checked_agents_carry_a_level():
    ghosh, uniform = summarise([opse([1.0], agent="ghosh"), opse([1.0], agent="uniform", replan="")])
    assert (label(ghosh), label(uniform)) == ("Ghosh et al. 2024", "Uniform policy")
    (mine,) = summarise([opse([1.0, 1.0], None, ["safe", "search"], agent="mine", level="calibrated")])
    assert label(mine) == "mine (calibrated)"


def test_a_multiplier_that_is_not_1_is_part_of_the_name():
    told = {"agent": "optpess-lp", "delta": 0.05}
    at = [opse([1.0] * 5, seed=seed, bonus=0.003, **told) for seed in range(2)]
    (row,) = summarise(at)
    assert label(row) == "OptPess-LP (bonus × 0.003) (heuristic)"
    assert findings.safe_and_unsafe([row])[0][0].startswith("OptPess-LP (bonus × 0.003) (0 of 10 episodes")
    one, other = summarise([*at, opse([1.0] * 5, seed=0, bonus=1.0, **told)])
    assert label(one) == "OptPess-LP [bonus=0.003] (heuristic)" and label(other) == "OptPess-LP [bonus=1.0] (heuristic)"
    radius = repr(Radius.authors(es.make("tabular").task, 100, bonus=0.01))
    (row,) = summarise([opse([1.0] * 5, agent="dope-authors", radius=radius)])
    assert label(row) == "DOPE, authors’ constants (bonus × 0.01) (heuristic)"
    assert label(*summarise([opse([1.0] * 5, agent="mine", bonus=7.0)])) == "mine"


def test_whoever_is_certified_is_not_said_to_plan_before_every_episode():
    row, other = summarise([opse([1.0] * 5, agent="opse-box", certifier="box"), opse([1.0] * 5)])
    assert {replanning(row), replanning(other)} == {"as its certifier says", "every episode"}


def test_runs_of_different_length_are_cut_to_the_shortest_and_said_to_be():
    runs = [opse([1.0] * 4, seconds=1.0), opse([0.0] * 6, seconds=1.0)]
    (summary,), (of,) = summarise(runs), curves(runs)
    assert summary.num_episodes == 4
    assert summary.regret.mean == (4 * 1 + 4 * 2) / 2
    assert summary.episodes_per_second.mean == (4 + 6) / 2
    assert of["regret"].episodes.tolist() == [1, 2, 3, 4]
    assert any("first 4 episodes" in note for note in summary.notes)


def test_unlike_and_repeated_runs_are_named():
    (unlike,) = summarise([opse([1.0], C_u=1.0, seed=0, run_seed=0), opse([1.0], C_u=2.0, seed=1, run_seed=1)])
    (repeated,) = summarise([opse([1.0], C_u=1.0, seed=0, run_seed=0)] * 3)
    assert [note for note in unlike.notes if "differ in C_u" in note]
    assert [note for note in repeated.notes if note.startswith("2 of 3 runs repeat")]
    assert repeated.settings == {"C_u": 1.0}
    assert summarise(a_comparison())[0].notes == ()


def test_a_frontier_is_told_by_what_was_asked_for():
    """Constants that a rule derives from each problem are no settings of their own, and no warning."""

    def asked(seed, job, **settings):
        return opse([1.0] * 5, seed=seed, run_seed=seed, job=f"tabular-opse-{seed} episodes=5{job}", **settings)

    tuned = [
        asked(seed, " constants=tuned multiplier=0.06", changes="multiplier=0.06", lam_max=100.7 + seed)
        for seed in (0, 1)
    ]
    published = [asked(seed, " multiplier=0.06", changes="multiplier=0.06", lam_max=300.0) for seed in (0, 1)]
    rows = summarise([*tuned, *published])
    assert [row.group.changes for row in rows] == ["constants=tuned, multiplier=0.06", "multiplier=0.06"]
    assert [row.num_runs for row in rows] == [2, 2] and [row.notes for row in rows] == [(), ()]
    page = html_of([*tuned, *published])
    assert page.count('<th scope="row">') == 2 and "<small>constants=tuned, multiplier=0.06</small>" in page


def test_a_setting_has_as_many_digits_as_tell_it_apart():
    runs = [opse([1.0], seed=0, run_seed=run, C_u=C_u) for run, C_u in enumerate((0.16799999999999998, 1.0))]
    assert [row.group.changes for row in summarise(runs)] == ["C_u=0.168", "C_u=1.0"]
    runs = [opse([1.0], seed=0, run_seed=run, C_u=C_u) for run, C_u in enumerate((0.16799999999999998, 0.1680000001))]
    assert [row.group.changes for row in summarise(runs)] == ["C_u=0.16799999999999998", "C_u=0.1680000001"]


def test_settings_of_a_row_are_told_in_few_digits():
    page = html_of([opse([1.0], seed=0, C_u=0.08399999999999999, S=1234567, C_r=1e-09)])
    told = page.partition("Seeds and settings of every row")[2]
    assert "C_u = 0.084;" in f"{told};".replace("<", ";") and "0.08399" not in page
    assert "S = 1234567" in told and "C_r = 1e-09" in told  # whole numbers are whole, small ones are not 0


def test_more_lines_than_can_be_told_apart_share_the_name_of_their_agent():
    runs = [opse([1.0] * 5, changes=f"C_u={C_u}") for C_u in range(MOST_LINES)]
    (few,) = charts(summarise(runs), curves(runs))
    assert not few.is_crowded and len(few.panels[0].legend) == MOST_LINES
    runs.append(opse([1.0] * 5, agent="ghosh"))
    (many,) = charts(summarise(runs), curves(runs))
    assert many.is_crowded
    assert [mark.label for mark in many.panels[0].legend] == ["OPSE-LCMDP, 12 settings", "Ghosh et al. 2024"]
    assert "all settings of an agent look alike" in html_of(runs) and '<ul class="verdict">' not in html_of(runs)


def test_who_plans_alike_is_told_together():
    rows = summarise([opse([1.0] * 5, agent=agent, replan="Doubling(growth=0.3)") for agent in ("opse", "dope")])
    assert (
        "On Tabular, released variant: everybody who plans, by Doubling(0.3)."
        in dict(findings.reading(rows))["Replanning"]
    )
    rows = summarise(
        [opse([1.0] * 5), *(opse([1.0] * 5, agent=a, replan="Doubling(growth=0.3)") for a in ("ghosh", "dope"))]
    )
    assert "Ghosh et al. 2024 and DOPE by Doubling(0.3)." in dict(findings.reading(rows))["Replanning"]


def test_remarks_fit_their_panel_however_long_the_names_are():
    long = "many words that name a setting, " * 3
    rows = [("search", long, 4.0), ("search", "b", 0.0)]
    runs = [opse([1.0] * 50, [1.0 - below] * 50, changes=name) for _, name, below in rows]
    runs += [opse([1.0] * 50, [1.0 - 0.01] * 50, changes=f"c, {long}")]
    (chart,) = charts(summarise(runs), curves(runs))
    assert chart.panels[1].remark and max(map(len, chart.panels[1].remark)) <= REMARK_WIDTH
    assert len(chart.panels[1].remark) <= REMARK_LINES


def test_numbers_below_zero_have_a_minus():
    assert with_minus("-1.5, [-2, 3] ± 1") == "−1.5, [−2, 3] ± 1"
    unchanged = "2026-11-17, plan-4, --seed, 1e-05, 3-4, `-1`"
    assert with_minus(unchanged) == unchanged
    page = html_of([opse([9.0] * 5, [0.0] * 5)])
    assert "regret −" in page and "regret -" not in page


def test_agents_on_different_seeds_are_not_compared_silently():
    summaries = summarise([opse([1.0], seed=0), opse([1.0], agent="ghosh", seed=1)])
    assert any("not run on the same seeds" in warning for warning in findings.warnings(summaries))


def test_a_curve_ends_at_the_last_episode_on_a_small_grid():
    of = curves([opse(np.linspace(0, 2, 10_007))])[0]["regret"]
    assert len(of.episodes) == GRID
    assert (of.episodes[0], of.episodes[-1]) == (1, 10_007)
    assert np.all(np.diff(of.episodes) > 0)
    assert of.mean[-1] == pytest.approx(10_007, rel=1e-12)  # the mean regret of an episode is 1
    assert np.isnan(of.low).all()


def test_bands_hold_possible_values_only():
    runs = [opse([2.0] * 9, [1.5] * 9, "search")] * 3 + [opse([0.0] * 9, [1.5] * 9, "safe")] * 2
    (of,) = curves(runs)
    assert of["regret"].mean[-1] == pytest.approx(7.2)
    assert of["regret"].low[-1] == 0.0  # a policy that keeps the threshold has no regret below zero
    assert (of["incumbent_episodes"].low[-1], of["incumbent_episodes"].high[-1]) == (0.0, 9.0)
    unsafe = [opse([2.0] * 9, [1.5] * 9)] * 3 + [opse([3.0] * 9, [0.0] * 9)] * 2
    (of,) = curves(unsafe)
    assert of["violation"].low[-1] == 0.0
    assert of["regret"].low[-1] < 0  # one that violates may have: its band is not cut


def test_few_runs_are_lines_and_have_no_band():
    (few,), (enough,) = (curves([opse([1.0 + i] * 9) for i in range(n)]) for n in (4, 5))
    assert np.isnan(few["regret"].low).all() and few["regret"].runs.shape == (4, 9)
    assert np.isfinite(enough["regret"].low).all() and len(enough["regret"].runs) == 0


def test_who_strays_from_the_incumbent_is_not_said_to_have_left_it():
    made = opse([1.0] * 5, None, ["search"] * 5)
    (plain,), (fresh,) = (summarise([one]) for one in (made, made.noting(certifier="fresh-data")))
    assert findings.reliance(plain) == "incumbent never acted"
    assert findings.reliance(fresh).startswith("strays at single steps from the incumbent")


def test_the_incumbent_is_counted_wherever_it_acted():
    """A mixture of which the coin drew the incumbent in 3 of 4 episodes, and one that deployed it alone."""
    made = opse([1.0] * 5, None, ["search"] * 4 + ["safe"])
    weights = np.array([[0.7, 0.3]] * 4 + [[1.0, 0.0]])
    acting = np.array([0, 0, 1, 0, -1])
    made = dataclasses.replace(made, weights=weights, acting_numbers=acting, acting_names=("incumbent", "proposal-1"))
    assert made.incumbent_acted().tolist() == [True, True, False, True, True]
    assert made.incumbent_acted().tolist() == (made.acting == "incumbent").tolist()
    (summary,) = summarise([made])
    assert (summary.incumbent_episodes.mean, summary.mixed_episodes.mean) == (4, 4)
    assert findings.reliance(summary) == "incumbent acted in 80 % of episodes; mixtures deployed in 80 %"


def test_csv_gives_back_every_bit():
    summaries = summarise([*a_comparison(), record([1 / 3, 1 / 7])])
    rows = list(csv.DictReader(io.StringIO(to_csv(summaries))))
    assert len(rows) == len(summaries)
    for row, summary in zip(rows, summaries, strict=True):
        assert (row["env"], row["agent"], row["replan"]) == (
            summary.group.env,
            summary.group.agent,
            summary.group.replan,
        )
        for metric in ("regret", "violation", "plans", "worst_violation"):
            found = (float(row[f"{metric}_mean"]), float(row[f"{metric}_half_width"]))
            interval = getattr(summary, metric)
            assert found == pytest.approx((interval.mean, interval.half_width), rel=0, abs=0, nan_ok=True)
        assert int(row["total_violating_episodes"]) == summary.total_violating_episodes


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [
        (1813.4, 52.3, "1,813 ± 52"),
        (0.45678, 0.0123, "0.457 ± 0.012"),
        (-3.21, 1.5, "-3.2 ± 1.5"),
        (0.0, 0.0, "0 ± 0"),
        (-0.001, 12.0, "0 ± 12"),
        (12.5, math.nan, "12.5"),
        (math.nan, math.nan, "–"),
    ],
)
def test_as_many_digits_as_the_interval_supports(mean, half_width, text):
    assert plus_minus(Interval(mean, half_width)) == text


def test_a_small_violation_is_not_printed_as_zero():
    assert number(3e-6) == "3.0e-06"
    assert number(3729.6) == "3,730"
    assert number(1e-13) == "0"
    assert findings.share(1, 1_000_000) == "< 0.1 %"
    assert findings.share(999_999, 1_000_000) == "> 99.9 %"
    assert (findings.share(0, 10), findings.share(10, 10), findings.share(1, 8)) == ("0 %", "100 %", "12.5 %")


def test_markdown_keeps_its_columns_whatever_the_names():
    lines = to_markdown(summarise([record([1.0], env="a | b")])).splitlines()
    assert lines[0].startswith("What must be kept is the expected utility: an episode violates if the expected total")
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines[2:5]] == [17, 17, 17]


def test_verdict_counts_in_plain_words():
    summaries = summarise(a_comparison())
    sentences = findings.verdict(summaries)
    assert sentences[0] == (
        "OPSE-LCMDP (heuristic): 0 violating episodes in 3 runs of 50 episodes; incumbent acted in 20 % of episodes."
    )
    assert sentences[1] == (
        "Ghosh et al. 2024: 50 violating episodes a run on average (100 %), in 3 of 3 runs; "
        "the worst episode was 0.1 below the threshold."
    )
    assert sentences[2].endswith("incumbent acted in every episode.")
    safe, unsafe = findings.safe_and_unsafe(summaries)
    assert safe == [
        "OPSE-LCMDP; DOPE (each 0 of 150 episodes, 3 runs; with 95 % confidence at most 70.8 % of such runs violate)"
    ]
    assert unsafe == [
        "Ghosh et al. 2024; Uniform policy (each 100 % of episodes, in 3 of 3 runs; with 95 % confidence 29.2 % to "
        "100 % of such runs violate)"
    ]


def test_regrets_are_ranked_where_the_runs_suffice():
    few, enough = summarise(a_comparison()), summarise(a_comparison(10))
    assert "too wide to rank" in findings.few_runs(few) and findings.lowest_regret(few) == ""
    assert findings.few_runs(enough) == ""
    assert "OPSE-LCMDP" in findings.lowest_regret(enough)  # Ghosh's is lower, and bought with violations


def test_zero_violation_is_written_into_its_panel():
    (chart,) = charts(summarise(a_comparison()), curves(a_comparison()))
    regret, violation, deployments = chart.panels
    assert violation.remark == ("0 throughout: OPSE-LCMDP; DOPE",)
    assert [mark.label.partition(" (")[0] for mark in deployments.legend] == ["OPSE-LCMDP", "DOPE"]
    assert len(regret.legend) == 4


def test_no_axis_over_episodes_bends_a_constant_rate_and_what_leaves_it_is_said():
    records = [
        opse([2.0 - regret] * 50, [1.0 - miss] * 50, agent=agent)
        for agent, regret, miss in (("uniform", 2.0, 0.9), ("opse", 0.05, 0.0), ("ghosh", -0.03, 0.05))
    ]
    (chart,) = charts(summarise(records), curves(records))
    regret, violation, _ = chart.panels
    for panel in (regret, violation):
        for mark in panel.legend:
            np.testing.assert_allclose(np.ptp(np.diff(mark.y) / np.diff(mark.x)), 0, atol=1e-9)
    assert regret.remark == ("beyond the axis: Uniform policy, 100",)
    assert regret.y.high < 5 and regret.y.low < -1.5  # the others are readable: 2.5 and −1.5
    assert violation.remark == ("0 throughout: OPSE-LCMDP", "beyond the axis: Uniform policy, 45")


def test_a_small_violation_is_named_where_it_looks_like_zero():
    records = [
        opse([1.0] * 50, [utility] * 50, agent=agent)
        for agent, utility in (("uniform", 0.0), ("dope", 0.5), ("ghosh", 0.999))
    ]
    (chart,) = charts(summarise(records), curves(records))
    assert chart.panels[1].remark == ("Ghosh et al. 2024 ends at 0.05, not 0",)


def test_figures_are_the_same_bytes_for_the_same_records(tmp_path):
    (chart,) = charts(summarise(a_comparison()), curves(a_comparison()))
    first = [path.read_bytes() for path in write_figures([chart], tmp_path / "1")]
    again = [path.read_bytes() for path in write_figures([chart], tmp_path / "2")]
    assert first == again
    assert (first[0][:8], first[1][:5]) == (b"\x89PNG\r\n\x1a\n", b"%PDF-")
    assert b"CreationDate" not in first[1]


def test_file_names_hold_no_separators():
    assert file_stem(("../a/b c", "text")) == "a-b-c-text"
    assert file_stem(("problem", "")) == "problem"


def html_of(records):
    summaries = summarise(records)
    return to_html(summaries, charts(summaries, curves(records)), software(r.settings for r in records), {})


def test_the_page_loads_nothing_and_is_small():
    page = html_of(a_comparison())
    assert len(page.encode()) < 200_000
    assert "default-src 'none'" in page
    for forbidden in ("http://", "https://", "cdn", "@import", "<link", "<script", "url("):
        assert forbidden not in page
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", page)  # date-free
    assert html_of(a_comparison()) == page


def test_every_picture_of_the_page_is_named_and_told_in_words():
    page = html_of(a_comparison())
    drawn = re.findall(r'<svg viewBox="[^"]*" role="img" aria-labelledby="(\S+) (\S+)">', page)
    assert len(drawn) == 3
    for title, said in drawn:
        assert re.search(rf'<title id="{title}">[^<]+</title>', page)
        assert re.search(rf'<desc id="{said}">[^<]*OPSE-LCMDP \(heuristic\) ends at [^<]+</desc>', page)


def test_the_page_says_what_the_numbers_are_worth():
    page = html_of(a_comparison()).replace("\u00a0", " ")
    for words in (
        "observed here, not proved",
        "It is signed",
        "exact constrained optimum",
        "cancelling",
        "follows the code behind the published figures",
        "replans by Doubling(0.3)",
        "numpy 2.4.6",
        "3 runs of 50 episodes",
    ):
        assert words in page
    assert page.index("Never violated") < page.index('role="img"') < page.index("All numbers")
    assert page.index("All numbers") < page.index("How to read this")


def test_names_cannot_break_the_page():
    page = html_of([record([1.0, 1.0], env="<script>alert(1)</script>", agent="a<b>c")])
    assert "<script>alert(1)" not in page
    assert "<b>c" not in page


def test_records_without_exact_values_are_shown_and_never_called_safe(tmp_path):
    """NaN is above no threshold: taken as it is, an unknown utility would count as no violation."""
    unknown = dataclasses.replace(opse([1.0, 2.0]), utility_values=np.full(2, np.nan), reward_values=np.full(2, np.nan))
    with pytest.raises(ValueError, match="nobody can say"):
        unknown.violating()
    unknown.save(tmp_path / "records" / "unknown")
    page = write_report(tmp_path).read_text()
    assert "below the threshold" not in page and "✓" not in page and "not reported" in page
    assert not (tmp_path / "summary.csv").exists()
    opse([1.0, 2.0]).save(tmp_path / "records" / "known")
    page = write_report(tmp_path).read_text()
    assert "Never violated" in page and "Runs without exact values" in page
    assert "0 of 2 episodes" in page  # the known one alone


def test_variants_are_said_of_the_papers_problems_only():
    (ours,), (theirs,) = (summarise([opse([1.0], env=env)]) for env in ("inventory", "tabular"))
    assert (ours.group.variant, theirs.group.variant) == ("", "released")


def test_the_incumbent_for_ever_acted_in_every_episode():
    (summary,) = summarise([opse([1.0] * 3, None, "fixed", agent="incumbent")])
    assert summary.incumbent_episodes.mean == 3
    assert "| 3 |" in to_markdown([summary]) and "| none |" in to_markdown([summary])


def test_few_runs_are_said_to_rank_nothing():
    assert "With 2 runs" in findings.few_runs(summarise([opse([1.0], seed=s) for s in range(2)]))
    assert findings.few_runs(summarise([opse([1.0], seed=s) for s in range(10)])) == ""


def test_report_of_a_folder_of_records(tmp_path):
    for i, made in enumerate(a_comparison()):
        made.save(tmp_path / "records" / str(i))
    (tmp_path / "records" / "unfinished").mkdir()
    (tmp_path / "records" / "unfinished" / "episodes.npz").write_bytes(b"half")
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert "1 run left out: unfinished" in path.read_text()
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["tabular-released.pdf", "tabular-released.png"]
    assert (tmp_path / "summary.csv").read_text() == to_csv(summarise(a_comparison()))
    assert (tmp_path / "summary.md").read_text() == to_markdown(summarise(a_comparison()))


@pytest.mark.parametrize("inside", [".", "run"])
def test_report_of_a_single_record_and_of_record_folders(tmp_path, inside):
    record([1.0, 1.5], [1.0, 0.5]).save(tmp_path / inside)
    page = write_report(tmp_path).read_text()
    assert "✗ 1 of 2 episodes below the threshold" in page
    assert (tmp_path / "figures" / "problem.png").is_file()


@pytest.mark.parametrize("inside", [".", "records", "missing/folder"])
def test_no_records_is_an_error_with_a_remedy(tmp_path, inside):
    (tmp_path / "records").mkdir()
    with pytest.raises(ValueError, match=r"holds no finished record: give a folder") as caught:
        write_report(tmp_path / inside)
    assert type(caught.value) is ValueError
    assert str(tmp_path) in str(caught.value)
    assert not list(tmp_path.rglob("report.html"))


def test_a_damaged_record_is_named(tmp_path):
    record([1.0]).save(tmp_path / "records" / "good")
    record([1.0]).save(tmp_path / "records" / "bad")
    (tmp_path / "records" / "bad" / "episodes.npz").write_bytes(b"not a zip file")
    with pytest.raises(DamagedFile, match="bad"):
        write_report(tmp_path)


def test_a_record_without_episodes_is_refused():
    with pytest.raises(ValueError, match="no episode"):
        summarise([record([])])


def test_rounds_of_bandits_are_drawn_on_a_logarithmic_axis_and_compared_with_the_incumbent(tmp_path):
    """1 below the optimum for 10 rounds, then 0.1; the incumbent 0.5 below: 10 + 0.1 m < 5 + 0.5 m from m = 13 on."""
    known = {"problem": "bandit", "env": "finite", "seed": 0, "run_seed": 0}
    learner = record([1.0] * 10 + [1.9] * 90, agent="oplbsp", level="theorem", deployment_bound=77.0, **known)
    learner.save(tmp_path / "learner")
    record([1.5] * 100, sources="safe", agent="incumbent", **known).save(tmp_path / "incumbent")
    write_report(tmp_path)
    cells = next(line for line in (tmp_path / "rounds.md").read_text().splitlines() if "OPLB-SP" in line).split(" | ")
    assert cells[4:7] == ["23", "23", "0"]
    assert cells[-1].startswith("77")
    shown = (tmp_path / "report.html").read_text().rpartition("<main>")[2]
    spoken = re.sub(r"<[^>]+>", " ", shown)
    assert "episode" not in spoken.lower() and "100 rounds" in spoken and "Safe linear bandits" in spoken
    assert "| Rounds |" in (tmp_path / "summary.md").read_text()
    drawn = curves([learner])[0]
    assert np.allclose(np.diff(np.log(drawn["regret"].episodes[-5:])), np.log(100) / 399, atol=0.02)


def test_what_peers_are_told_and_written_from_stands_above_the_numbers(tmp_path):
    known = {"problem": "bandit", "env": "finite", "seed": 0, "run_seed": 0, "level": "theorem"}
    said = {"told_besides": "its utility", "level_assumes": "this is exact"}
    record([1.0] * 10, agent="oplb", **said, **known).save(tmp_path / "oplb")
    record([1.0] * 10, agent="oplbsp", told_besides="", **known).save(tmp_path / "oplbsp")
    write_report(tmp_path)
    top = (tmp_path / "summary.md").read_text().partition("| Environment")[0]
    for words in ("OPLB is told its utility", "not checked against its text: OPLB.", "OPLB also needs that this is"):
        assert words in top and words in (tmp_path / "report.html").read_text().partition("<table")[0]
    assert "OPLB-SP" not in top


def test_an_optimum_that_changes_is_saved_and_counted(tmp_path):
    made = Record(**{**vars(record([1.0, 2.0, 3.0])), "optima": np.array([1.5, 2.0, 4.0]), "optimum": 2.5})
    made.save(tmp_path / "run")
    np.testing.assert_allclose(Record.load(tmp_path / "run").regret(), [0.5, 0.5, 1.5])
