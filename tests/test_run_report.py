"""Reports of single runs: what was gained and kept, who acted, from records, Gymnasium runs and live journals."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import episafe as es
from episafe.deployment.follower import Follower
from episafe.reports import frontier_page
from episafe.reports.audit_page import as_html, as_text
from episafe.reports.pictures import Dots, Guide, Note, Picture, PlotArea, Polyline, Scale
from episafe.reports.record_groups import Group
from episafe.reports.report import write_report
from episafe.reports.run_page import gained, kept, who_acted
from episafe.reports.run_pictures import (
    blocks,
    bound_picture,
    by_constraint,
    change_pictures,
    incumbent_values,
    observed_change,
    pictures,
    raw_cost,
    utility_picture,
)
from episafe.runs.record import Record


def record(K=100, values=True, **settings):
    """Reward 1 → 2 and utility 4 → 3 against 2.5; the incumbent alone in the first tenth."""
    nothing = np.full(K, np.nan)
    sources = np.array(["safe"] * (K // 10) + ["search"] * (K - K // 10))
    rewards, utilities = np.linspace(1, 2, K), np.linspace(4, 3, K)
    bounds = np.where(sources == "safe", 1.0, 2.6)
    exact = (rewards, utilities) if values else (nothing, nothing)
    seen = {} if values else {"reward_totals": rewards, "utility_totals": utilities}
    return Record(*exact, sources, nothing, bounds, np.arange(K), optimum=3.0, threshold=2.5, settings=settings, **seen)


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A live session of 60 deployments, two of them never reported, halted after the 50th."""
    folder = tmp_path_factory.mktemp("live") / "shop"
    cmdp, rng, totals = es.make("streaming", seed=2), np.random.default_rng(0), []
    with es.open(folder, agent=es.OPSE(cmdp.task, es.Constants.paper("streaming")), sync="plans") as session:
        for k in range(60):
            deployed, states, actions = session.deploy(rng), [cmdp.task.initial_state], []
            for h in range(cmdp.task.horizon):
                actions.append(deployed.policy.act(h, states[-1], rng))
                states.append(int(rng.choice(cmdp.task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
            totals.append(
                sum(cmdp.task.utility[h, s, a] for h, (s, a) in enumerate(zip(states, actions, strict=False)))
            )
            if k not in (7, 31):
                session.learn(es.Episode(states, actions), deployment=deployed.id)
            if k == 49:
                session.halt("a person said so")
    return folder, totals


def test_the_three_facts_of_an_exact_run():
    made = record(env="x", incumbent_reward=1.0, incumbent_utility=4.0, level="theorem")
    assert gained(made)["headline"] == "+95.5 % reward"  # the last tenth has 1.91 to 2.0 on average
    assert "47.7 % of the way to the optimum 3" in gained(made)["said"]
    assert kept(made)["headline"] == "✓ 0 of 100 episodes below the threshold"
    assert who_acted(made)["headline"] == "Incumbent acted in 10 %"
    assert sum(map(int, re.findall(r": (\d+)", who_acted(made)["said"]))) == 100  # counts, which no rounding unsettles
    unsafe = replace(made, threshold=3.5)
    assert kept(unsafe) | {"said": ""} == {
        "headline": "✗ 50 of 100 episodes below the threshold", "said": "", "css": "unsafe",
    }  # fmt: skip


def test_an_observed_run_is_never_called_safe_and_noise_no_gain():
    rng = np.random.default_rng(0)
    made = replace(record(values=False), reward_totals=rng.random(100), utility_totals=rng.random(100) + 3)
    assert gained(made)["headline"] == "Reward: no difference seen"
    assert "✓" not in kept(made)["headline"] and "Observed" in kept(made)["said"]
    below = replace(made, utility_totals=rng.random(100))
    assert kept(below)["css"] == "unsafe"


def test_a_gain_is_one_only_beyond_the_error_of_the_incumbent_too():
    rewards = np.repeat([0.0, 0.6], 50)
    rewards[:10] = np.arange(10) % 2  # ten episodes of the incumbent, 0.5 ± 0.33 by what was seen of them
    made = replace(record(values=False), reward_totals=rewards, utility_totals=np.full(100, 4.0))
    assert gained(made)["headline"] == "Reward: no difference seen"
    assert gained(made)["said"].startswith("0.50 ± 0.33 of the incumbent, 0.6 ± 0 in the last tenth")
    known = replace(made, settings={"incumbent_reward": 0.5, "incumbent_utility": 4.0})
    assert gained(known)["headline"] == "+20.0 % reward"


def test_a_reward_beside_an_unknown_one_is_told():
    never = replace(record(), sources=np.full(100, "search"))
    assert gained(never) | {"css": ""} == {
        "headline": "Reward 1.955",
        "said": "In the last tenth of the episodes. The incumbent’s is not known here: it never acted alone.",
        "css": "",
    }


def test_block_means_leave_out_what_was_not_reported():
    totals = np.array([1.0, np.nan, 3.0, *[2.0] * 17])
    x, mean, _ = blocks(totals)
    assert mean.tolist() == [2.0, 2.0]
    assert x.tolist() == [5.5, 15.5]


def test_the_unsafe_zone_ends_at_the_threshold_and_the_first_allowed_plan_is_labelled():
    made = record()
    zone = utility_picture(made, [(20, "x")]).marks[0]
    assert zone.high == 2.5 and zone.name == "unsafe"
    refused, allowed, note = bound_picture(made).marks
    assert (len(refused.x), len(allowed.x)) == (10, 90)
    assert note.words == "first allowed: episode 11"
    far = bound_picture(replace(made, utility_bounds=np.where(made.sources == "safe", -1e3, 2.6)))
    assert "drawn at the edge" in far.caption and far.y.low < far.marks[0].y.min()  # within the axes
    assert list(pictures(made)) == ["What came of it", "Why it was allowed", "Who acted"]


def test_what_changed_is_the_difference_of_frequencies():
    path = {0: ([0, 1, 0], [0, 0]), 1: ([0, 1, 0], [1, 0])}
    episodes = [path[0]] * 10 + [path[1]] * 5 + [path[0]] * 5 + [None]
    change, states = observed_change(episodes, [True] * 10 + [False] * 11, None)
    assert states == ["0", "1"]
    np.testing.assert_allclose(change[0, 0], [-0.5, 0.5])
    np.testing.assert_allclose(change[1, 1], [0.0, 0.0])
    assert np.isnan(change[1, 0]).all()
    assert observed_change(episodes, [True] * 21, None) is None


def test_a_live_journal_is_a_record_of_its_deployments(lived, tmp_path):
    folder, totals = lived
    journal = Follower(folder)
    journal.read_on()
    made = journal.record
    assert len(made.sources) == 60 and np.flatnonzero(np.isnan(made.utility_totals)).tolist() == [7, 31]
    reported = np.delete(np.arange(60), [7, 31])
    np.testing.assert_allclose(made.utility_totals[reported], np.array(totals)[reported])
    assert journal.columns.halts == [(49, "a person said so")]
    assert (made.sources[50:] == "safe").all() and made.threshold == es.make("streaming", seed=2).task.threshold
    page = write_report(folder).read_text()
    for words in ("2 of 60 deployments have no report yet", "Halted after deployment 50: a person said so",
                  "alarm, or halt by a person", "Incumbent acted in", "What changed"):  # fmt: skip
        assert words in page


def test_the_audit_page_has_pictures_and_every_change_of_source(lived):
    folder, _ = lived
    found = es.audit(folder)
    page = as_html(found.as_dict(), found.lines)
    assert page.count('role="img"') == 2 and "Lower bound of each plan" in page and "What was deployed" in page
    sources = [json.loads(line).get("source", "event") for line in found.lines]
    changes = 1 + sum(one != other or one == "event" for one, other in pairwise(sources))
    assert page.partition("<tbody>")[2].count("<tr>") == changes > 3
    assert '<td class="number">' in page and "exploring was stopped" in page


def test_the_frontier_page_lays_no_point_on_another(tmp_path):
    point = {"level": "heuristic", "num_problems": 3, "num_episodes": 9, "regret_half_width": 1.0,
             "violation_half_width": 0.0, "num_violating": 0}  # fmt: skip
    points = [
        point | {"env": "tabular", "agent": agent, "multiplier": m, "regret": 100.0, "violation": 0.0}
        for agent in ("opse, tuned", "opse, published", "dope, published")
        for m in (1.0, 0.5)
    ]
    for picture in frontier_page.pictures(points, "tabular"):
        drawn = [
            (x, y) for mark in picture.marks if isinstance(mark, Dots) for x, y in zip(mark.x, mark.y, strict=True)
        ]
        assert len(set(drawn)) == len(points)
    winner = points[0] | {"rate_low": 0.0, "rate_high": 0.5, "regret_where_picked": 90.0}
    assert "OPSE-LCMDP, tuned constants" in frontier_page.to_html(points, [winner])
    alone = winner | {"num_problems": 1, "regret_half_width": float("nan"), "regret": 1234.0}
    assert ">1,234<" in frontier_page.to_html(points, [alone])
    assert frontier_page.write_figure(points, tmp_path / "x.png").stat().st_size > 10_000


def test_a_report_says_how_much_of_it_is_done(tmp_path, lived):
    shares = []
    for seed in range(2):
        record(200, env="x", seed=seed).save(tmp_path / str(seed))
    write_report(tmp_path, on_progress=shares.append)
    assert shares == sorted(shares) and len(shares) > 2 and 0 < shares[0] < 0.1 and shares[-1] == 1.0
    shares.clear()
    write_report(lived[0], on_progress=shares.append)
    assert shares == sorted(shares) and len(shares) > 50 and shares[-1] == 1.0


def test_a_run_that_was_stopped_is_reported_as_far_as_it_came(tmp_path):
    cmdp = es.make("streaming", seed=0)

    def agent():
        return es.OPSE(cmdp.task, es.Constants.paper("streaming"), certifier=es.certify.Observation())

    whole = es.run(cmdp, agent(), 300, folder=tmp_path / "run")
    for name in ("run.toml", "episodes.npz"):
        (tmp_path / "run" / name).unlink()
    journal = Follower(tmp_path / "run")
    journal.read_on()
    found = journal.record
    for name in whole.columns():
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert (found.optimum, found.threshold) == (whole.optimum, whole.threshold)
    page = write_report(tmp_path / "run").read_text()
    assert "Unfinished: go on with" in page and "drawn from a mixture" in page


def test_a_gymnasium_record_is_reported(tmp_path):
    made = record(values=False, env="mine", agent="opse")
    made.save(tmp_path / "one")
    made.save(tmp_path / "two")
    page = write_report(tmp_path).read_text()
    assert page.count('role="img"') == 8
    assert len(set(re.findall(r' id="([^"]+)"', page))) == len(re.findall(r' id="([^"]+)"', page))


def test_incumbent_values_are_said_or_those_of_its_episodes():
    cmdp = es.make("streaming", seed=0)
    made = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("streaming")), 50)
    expected = cmdp.evaluate(cmdp.task.safe_policy)
    assert incumbent_values(made) == pytest.approx(expected)
    unsaid = {key: value for key, value in made.settings.items() if not key.startswith("incumbent_")}
    assert incumbent_values(replace(made, settings=unsaid)) == pytest.approx(expected)


def test_a_record_plots_itself_in_a_notebook():
    cmdp = es.make("streaming", seed=0)
    agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
    made = es.run(cmdp, agent, 60)
    assert [axes.get_title(loc="left") for axes in made.plot().axes] == [
        "Reward", "Utility, which must be kept", "Lower bound of each plan", "Share of episodes",
    ]  # fmt: skip
    assert len(made.plot(agent.plan().policy, cmdp.task.safe_policy).axes) > 4


def test_every_constraint_has_its_picture_and_its_fact():
    K = 60
    two = np.column_stack([np.linspace(4, 3, K), np.linspace(3, 2, K)])
    made = replace(
        record(K, incumbent_reward=1.0, incumbent_utility_1=4.0, incumbent_utility_2=3.0),
        utility_values=two, utility_bounds=two - 0.1, threshold=np.array([2.5, 2.4]), constraint_names=("late", "lost"),
    )  # fmt: skip
    titles = [picture.title for drawn in pictures(made).values() for picture in drawn]
    assert titles == [
        "Reward", "Utility, which must be kept: late", "Utility, which must be kept: lost",
        "Lower bound of each plan: late", "Lower bound of each plan: lost", "Share of episodes",
    ]  # fmt: skip
    assert [level.y for level in utility_picture(by_constraint(made)[1], []).levels] == [3.0, 2.4]
    late, lost = map(kept, by_constraint(made))
    assert (late["css"], lost["css"]) == ("safe", "unsafe") and lost["headline"].startswith("✗ lost: ")


def test_a_utility_that_stands_for_a_cost_is_said_to():
    """Costs in [0, 5] a step, at most 12 of them: a utility of 0.5 below the threshold is a cost of 2.5 above that."""
    costs = {"signal": "cost", "limit": 12.0, "cost_low": 0.0, "cost_high": 5.0}
    observed = record(values=False, **costs)
    mean = observed.utility_totals[-10:].mean()
    assert raw_cost(observed, 2.0) == (14.5, 12.0) and raw_cost(record(), 2.0) is None
    assert f"As a cost: {12 + 5 * (2.5 - mean):.4g}, at most 12." in kept(observed)["said"]
    assert utility_picture(observed, []).title == "Utility, 1 − cost a step, which must be kept"
    named = record(values=False, **{f"{key}_late": value for key, value in costs.items()}, constraint="late")
    assert raw_cost(named, 2.0) == (14.5, 12.0)


def test_a_run_with_several_constraints_is_kept_and_reported(tmp_path):
    """Settings have names of constraints in them, which are no bare keys of TOML; violations are summed."""
    cmdp = es.make("tabular", num_constraints=2)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
    made = es.run(cmdp, agent, 30, folder=tmp_path / "run")
    assert es.Record.load(tmp_path / "run").settings == made.settings
    page = write_report(tmp_path / "run").read_text()
    assert (
        page.count("0 of 30 episodes below the threshold") == 2 and "Utility, which must be kept: constraint 1" in page
    )


def test_only_states_of_which_something_is_known_are_rows_of_a_map():
    episodes = [([0, 1], [0]), ([0, 2], [1])] * 6 + [([3, 1], [1])]
    table = np.full((1, 4, 2), 0.5)
    change, states = observed_change(episodes, [False] * 13, table)
    assert states == ["0"] and change.shape == (1, 1, 2)


def test_a_plot_is_shown_by_a_notebook_that_did_not_import_pyplot():
    assert record(env="x").plot()._repr_png_().startswith(b"\x89PNG")


def test_a_bandit_is_named_by_the_radius_that_it_had():
    bandit = es.bandits.make("finite", seed=0)
    for radius, said in (("paper", ("oplbsp", "")), ("determinant", ("oplbsp-determinant", "")),
                         ("anytime", ("oplbsp", "radius=anytime"))):  # fmt: skip
        made = es.run(bandit, es.bandits.OPLBSP(bandit.task, num_rounds=20, radius=radius), 20, 0)
        group = Group.said_by(made.settings)
        assert (group.agent, group.changes) == said


def test_an_audit_names_candidates_and_is_green_only_where_certificates_were_made_again(tmp_path):
    agent, rng = es.Rollout(0.5, 0.2, {"v2": "v2"}, "v1", utility_max=1.0), np.random.default_rng(0)
    with es.open(tmp_path / "shop", agent) as session:
        for _ in range(250):
            session.learn(es.Episode.of_totals(0.9), deployment=session.deploy(rng).id)
        session.halt("a person said so")
        session.deploy(rng)
    found = es.audit(tmp_path / "shop")
    page = as_html(found.as_dict(), found.lines)
    rows = as_text(found.as_dict(), found.lines).partition("from  plan")[2].split("\n")
    assert rows[1].endswith("a candidate comes on trial: v2") and not any(row.endswith("–") for row in rows[1:])
    assert found.recomputed is None and 'class="findings "' in page
    assert "a candidate comes on trial: v2" in page and "a learned policy: v2" in page
    assert '<td class="number">-1</td>' not in page


def test_a_threshold_that_was_changed_is_on_the_report_and_the_audit_page(tmp_path):
    agent, rng = es.Rollout(0.5, 0.2, {"v2": "v2"}, "v1", utility_max=1.0), np.random.default_rng(0)
    with es.open(tmp_path / "shop", agent) as session:
        for k in range(40):
            session.learn(es.Episode.of_totals(0.9, 1.0), deployment=session.deploy(rng).id)
            if k == 24:
                session.change("stricter", threshold=0.55)
    found = es.audit(tmp_path / "shop")
    page = as_html(found.as_dict(), found.lines)
    assert "reaches the threshold 0.5, from deployment 26 on 0.55; else" in page
    before = "threshold, before it was changed"
    assert before in page and before in write_report(tmp_path / "shop").read_text()


def test_an_audit_of_two_constraints_names_both_thresholds_and_no_margin_of_rounding(tmp_path):
    cmdp = es.make("tabular", seed=0, num_constraints=2)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
    es.run(cmdp, agent, 20, folder=tmp_path)
    found = es.audit(tmp_path)
    page = as_html(found.as_dict(), found.lines)
    assert "reaches its threshold, 0.685954 and 0.350316; else" in page
    assert (
        "learned policy was &lt; 1e-09." in page
        and "e-13" not in page
        and "(a simulation keeps no names of what it mixes)" in page
    )


def test_a_map_tells_no_difference_from_nothing_known():
    cells = change_pictures(np.array([[[0.5, -0.5], [0.0, 0.0], [np.nan, np.nan]]]), ["0", "1", "2"])[0].marks[0]
    box = PlotArea(Scale("", 0, 1, ()), Scale("", 0, 3, ()), 0, 0, 1, 1)
    assert cells.svg(box).count('class="cell"') == 2


def test_no_line_of_a_picture_runs_through_the_words_of_a_note():
    axis = Scale.linear("", 0.0, 1.0)
    drawn = Picture("", axis, axis, [Note(0.5, 0.5, "first allowed", "#000000")], levels=[Guide(0.5, "#111111", "b")])
    assert drawn.svg().index("#111111") < drawn.svg().index("first allowed")


def test_a_single_run_is_drawn_fainter_than_the_mean_beside_it():
    axis, at = Scale.linear("", 0.0, 1.0), np.array([0.0, 1.0])
    faint, firm = (Picture("", axis, axis, [Polyline(at, at, "#000000", opacity=o)]).svg() for o in (0.35, 1.0))
    assert "stroke-opacity:0.35" in faint and "stroke-opacity" not in firm


def test_the_runs_of_a_page_are_called_runs(tmp_path):
    for seed in range(2):
        record(values=False, env="shop").save(tmp_path / str(seed))
    page = write_report(tmp_path).read_text()
    assert "<h2>Run 0</h2>" in page and "<h2>Run 1</h2>" in page
