"""Monitors: honest runs stay quiet, dishonest ones do not; the figures are those of the formulas."""

import json
import math
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from conftest import constants
from episafe.cli import app
from episafe.deployment.open_session import OpenSession
from episafe.kernels.claim_wealth import OF_BOUND, against, best_prefix
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.mean_intervals import interval
from episafe.monitors.residual_test import ResidualMonitor
from episafe.monitors.statements import READINGS, STATEMENTS, Statement, Watched, WatchedTest
from episafe.problems.policy import TablePolicy
from episafe.reports.record_groups import notes

ENVS = ["tabular", "streaming", "linear"]


def episodes(cmdp, table, count, rng):
    """States (n, H+1) and actions (n, H), drawn one by one from the definition."""
    H, S, A = cmdp.task.reward.shape
    states, actions = np.zeros((count, H + 1), dtype=np.int64), np.zeros((count, H), dtype=np.int64)
    states[:, 0] = cmdp.task.initial_state
    for h in range(H):
        for k in range(count):
            actions[k, h] = rng.choice(A, p=table[h, states[k, h]])
            states[k, h + 1] = rng.choice(S, p=cmdp.P[h, states[k, h], actions[k, h]])
    return states, actions


def coins(table, P, task, count, rng):
    """The same for many episodes at once."""
    states, actions = (
        np.zeros((count, task.horizon + 1), dtype=np.int64),
        np.zeros((count, task.horizon), dtype=np.int64),
    )
    states[:, 0] = task.initial_state
    for h in range(task.horizon):
        for drawn, sums in (
            (actions[:, h], lambda h=h: np.cumsum(table[h, states[:, h]], axis=-1)),
            (states[:, h + 1], lambda h=h: np.cumsum(P[h, states[:, h], actions[:, h]], axis=-1)),
        ):
            running = sums()
            drawn[:] = np.minimum((running <= rng.random((count, 1))).sum(axis=-1), running.shape[1] - 1)
    return states, actions


def told(cmdp, slack=None, safe=None):
    """The task with another slack or another incumbent."""
    task = cmdp.task
    constraint = es.Constraint(task.utility, task.threshold, task.slack if slack is None else slack)
    return es.Task(
        task.horizon, task.num_states, task.num_actions, task.reward, task.phi, task.initial_state, constraint,
        task.safe_policy if safe is None else safe,
    )  # fmt: skip


def watched(monitors, cmdp, table, count, rng, incumbent=True, bound=math.nan):
    states, actions = coins(table, cmdp.P, cmdp.task, count, rng)
    who = np.full(count, incumbent)
    return monitors.watch_batch(states, actions, np.full(count, bound), who, ~who)


def half_as_useful(cmdp, gap=0.1):
    """A table with `gap`·H less utility than the incumbent's."""
    best, uniform = cmdp.task.safe_policy.table(), np.full(cmdp.task.reward.shape, 1 / cmdp.task.num_actions)
    wanted = cmdp.evaluate(best)[1] - gap * cmdp.task.horizon
    share = next(s for s in np.linspace(0, 1, 201) if cmdp.evaluate((1 - s) * best + s * uniform)[1] <= wanted)
    return (1 - share) * best + share * uniform


def chain(b=0.5):
    """One state, two steps, utilities 0 or 1 a step by action: the table says how much there is."""
    P, utility = np.ones((2, 1, 2, 1)), np.zeros((2, 1, 2))
    utility[:, :, 0] = 1.0
    return es.LinearCMDP(P, 1 - utility, utility, threshold=b, safe_policy=[[[0.75, 0.25]]] * 2)


def table_with(mean):
    """The table of `chain` with this expected utility."""
    return np.array([[[mean / 2, 1 - mean / 2]]] * 2)


# Incumbent


@pytest.mark.parametrize("name", ENVS)
def test_an_honest_incumbent_does_not_alarm_and_a_lying_one_does(name):
    for seed in range(15):
        cmdp = es.make(name, seed=7000 + seed)
        rng, monitors = np.random.default_rng(seed), es.Monitors(cmdp.task)
        assert watched(monitors, cmdp, cmdp.task.safe_policy.table(), 3000, rng) == []
        assert monitors.status()["incumbent"]["episodes"] == 3000
    for seed in range(3):
        cmdp = es.make(name, seed=7000 + seed, **({} if name != "tabular" else {"probability_of_one": 0.5}))
        rng, monitors = np.random.default_rng(seed), es.Monitors(cmdp.task)
        first = watched(monitors, cmdp, half_as_useful(cmdp), 3000, rng)
        assert [alarm.what for alarm in first if alarm.what != "drift"] == ["incumbent"]
        assert first[0].halts and "not as safe as stated" in first[0].says
        assert watched(monitors, cmdp, half_as_useful(cmdp), 100, rng) == []  # said once


def test_the_interval_is_the_sequence_of_the_certifier_on_both_sides():
    """Against a search over means: the largest refuted m of U, and of H − U."""
    rng, H, log_term = np.random.default_rng(0), 2.0, math.log(len(BETS) / 0.01)
    U = rng.choice([0.0, 1.0, 2.0], size=400, p=[0.2, 0.3, 0.5])

    def refuted(X, m):
        z = (X - m) / m
        cost = -np.log1p(-BETS) - BETS
        return (BETS * z.sum() - cost * (z**2).sum()).max() >= log_term

    low, high = interval(400, U.sum(), (U**2).sum(), 0, H, math.nan, log_term)
    for X, end in ((U, low), (H - U, H - high)):
        assert refuted(X, end * (1 - 1e-9)) and not refuted(X, end * (1 + 1e-6))


def test_the_interval_covers_and_a_third_of_it_does_not():
    """300 runs, 400 looks each, δ = 0.05 a side: noisy utilities, where the width is a formula."""
    rng, misses, thirds = np.random.default_rng(1), 0, 0
    log_term = math.log(len(BETS) / 0.05)
    for _ in range(300):
        sums = np.cumsum(rng.normal(size=400))
        ends = np.array([interval(n, sums[n - 1], 0.0, 0, math.nan, 1.0, log_term) for n in range(1, 401)])
        middle, width = ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2
        misses += (np.abs(middle) > width).any()
        thirds += (np.abs(middle) > width / 3).any()
    assert misses <= 0.1 * 300
    assert thirds > 0.2 * 300


# Claims


def test_the_wealth_of_a_claim_is_the_product_over_episodes():
    """Held against `best_prefix` of the last block: nothing is pending, so only the whole history is there."""
    cmdp, rng = chain(), np.random.default_rng(2)
    monitors, policy = es.Monitors(cmdp.task), TablePolicy(table_with(1.0))
    actions, bounds = rng.integers(2, size=(50, 2)), rng.uniform(0.5, 1.5, 50)
    for row, bound in zip(actions, bounds, strict=True):
        monitors.watch(es.Plan(policy, "search", utility_bound=bound), es.Episode([0, 0, 0], row))
    g = (bounds - (2 - actions.sum(axis=1))) / (2 - bounds)
    expected = math.log(np.mean([np.prod(1 + bet * g) for bet in BETS]))
    found = best_prefix(monitors.seen.purse, OF_BOUND, 0, -math.inf)
    assert found == pytest.approx(expected, abs=1e-9)


def test_noisy_utilities_are_bet_on_with_a_factor_of_mean_one():
    """E[1 + λg] = 1 for z normal, and g ≥ −1 whatever was seen."""
    z, weight = np.polynomial.hermite_e.hermegauss(60)
    g = [against(-x, 0.0, math.nan, 1.0) for x in z]
    assert np.dot(weight, g) / weight.sum() == pytest.approx(0.0, abs=1e-12)
    assert against(1e9, 0.0, math.nan, 1.0) == -1.0 and math.isfinite(against(-1e9, 0.0, math.nan, 1.0))


@pytest.mark.parametrize(
    ("mean", "bound", "alarms"),
    [(0.5, 0.5, []), (0.4, 0.6, ["bound", "spell", "threshold"]), (0.52, 0.7, ["bound"]), (0.8, 0.7, [])],
)
def test_checked_policies_are_held_to_the_threshold_and_to_their_bound(mean, bound, alarms):
    cmdp = chain()
    for seed in range(5):
        monitors = es.Monitors(cmdp.task)
        found = watched(monitors, cmdp, table_with(mean), 3000, np.random.default_rng(seed), False, bound)
        assert sorted(alarm.what for alarm in found) == alarms


def test_false_alarms_are_as_rare_as_stated_where_every_claim_is_just_true():
    """δ = 0.2 in all: 300 runs of an incumbent with exactly b + ξ and of a policy with exactly b, its bound."""
    cmdp = chain()
    task, false = told(cmdp, slack=1.0), 0
    for seed in range(300):
        rng, monitors = np.random.default_rng(seed), es.Monitors(task, delta=0.2)
        watched(monitors, cmdp, table_with(1.5), 500, rng)
        watched(monitors, cmdp, table_with(0.5), 500, rng, False, 0.5)
        false += bool(monitors.alarms)
    assert false <= 0.2 * 300 + 3 * math.sqrt(0.2 * 0.8 * 300)


def test_a_mixture_counts_for_the_incumbent_only_when_it_acted():
    """The candidate has no utility at all; over the coin the mixture keeps its promise, and so does the incumbent."""
    cmdp = chain()
    task, rng = cmdp.task, np.random.default_rng(3)
    candidate = TablePolicy(table_with(0.0))
    plan = es.Plan(es.MixturePolicy((candidate, task.safe_policy), (0.3, 0.7)), "search", utility_bound=1.05)
    monitors, blind = es.Monitors(task), es.Monitors(task)
    for _ in range(1500):
        component, policy = plan.policy.draw(rng)
        actions = [policy.act(h, 0, rng) for h in range(2)]
        assert monitors.watch(plan, es.Episode([0, 0, 0], actions, component=component)) == []
        blind.watch(es.Plan(task.safe_policy, "safe"), es.Episode([0, 0, 0], actions))
    assert monitors.status()["threshold"]["episodes"] == 1500
    assert 900 < monitors.status()["incumbent"]["episodes"] < 1200
    assert "incumbent" in {alarm.what for alarm in blind.alarms}  # the control: who acted matters


def test_utilities_outside_their_range_are_an_alarm_and_are_not_counted():
    monitors = es.Monitors(chain().task)
    plan = es.Plan(monitors.task.safe_policy, "safe")
    (alarm,) = monitors.watch(plan, es.Episode([0, 0, 0], [0, 0], utilities=[1.0, 1.5]))
    assert (alarm.what, alarm.halts, monitors.status()["incumbent"]["episodes"]) == ("range", True, 0)


# Drift


def test_drift_alarms_when_the_incumbent_changes_and_not_before():
    cmdp = chain(b=0.1)
    task = told(cmdp, slack=0.3)  # b + ξ = 0.4, far below: it is not the level that is wrong
    for seed in range(10):
        rng, monitors = np.random.default_rng(seed), es.Monitors(task)
        assert watched(monitors, cmdp, table_with(1.2), 2000, rng) == []
        assert [alarm.what for alarm in watched(monitors, cmdp, table_with(0.8), 2000, rng)] == ["drift"]


# Residual


def two_features(up):
    """Three states at 0, ½ and 1; each leads to the last with 0.7·up, to the middle with 0.3. Features (1, place)."""
    place, up = np.array([0.0, 0.5, 1.0]), np.array(up)
    P = np.tile(np.stack([0.7 * (1 - up), np.full(3, 0.3), 0.7 * up], axis=-1)[None, :, None], (2, 1, 2, 1))
    phi = np.tile(np.stack([np.full(3, 0.5), place / 2], axis=-1)[:, None], (1, 2, 1))
    half = np.full((2, 3, 2), 0.5)
    return es.LinearCMDP(P, half, half, phi, threshold=0.5)


def test_residuals_alarm_if_features_are_not_linear_and_only_then():
    for seed in range(10):
        straight, bent = two_features([0.2, 0.5, 0.8]), two_features([0.8, 0.1, 0.8])
        assert straight.linearity_gap() < 1e-12 < 0.1 < bent.linearity_gap()
        table, rng = straight.task.safe_policy.table(), np.random.default_rng(seed)
        assert watched(es.Monitors(straight.task), straight, table, 5000, rng) == []
        found = watched(es.Monitors(bent.task), bent, table, 5000, rng)
        assert [(alarm.what, alarm.halts) for alarm in found] == [("residual", False)]


def test_the_evidence_is_the_better_prediction_beforehand():
    """ln mean_K exp(min_M Σ‖y − Mᵀφ‖² − Σ‖y − p‖²), with every sum written out."""
    rng, monitor = np.random.default_rng(4), ResidualMonitor(1, 2, 0.01)
    phi, cells, boxes = rng.random((96, 1, 2)) / 2, rng.integers(5, size=(96, 1)), rng.integers(16, size=(96, 1))
    monitor.watch(phi[:64], cells[:64], boxes[:64])  # the first epoch begins
    fit = monitor.seen.fit[0].copy()
    monitor.watch(phi[64:66], cells[64:66], boxes[64:66])  # less than until the next look: the fit stays
    Y, X = np.eye(16)[boxes[64:66, 0]], phi[64:66, 0]
    best = ((Y - X @ np.linalg.lstsq(X, Y, rcond=None)[0]) ** 2).sum()
    gains = []
    for K in 4.0 ** np.arange(2, 6):
        loss = 0.0
        for k in (64, 65):
            past = cells[:k, 0] == cells[k, 0]
            tally = np.eye(16)[boxes[:k, 0]][past].sum(axis=0)
            p = (tally + K * np.clip(phi[k, 0] @ fit, 0, 1)) / (past.sum() + K)
            loss += ((np.eye(16)[boxes[k, 0]] - p) ** 2).sum()
        gains.append(best - loss)
    assert monitor.log_evidence() == pytest.approx(np.logaddexp.reduce(gains) - math.log(4), abs=1e-9)


def test_one_hot_features_need_no_residual_test():
    assert "residual" not in es.Monitors(es.make("tabular").task).status()


# Order, batches, state


def test_a_batch_is_its_episodes_one_by_one():
    cmdp = es.make("linear", seed=1, num_states=12)
    rng, table = np.random.default_rng(5), cmdp.task.safe_policy.table()
    states, actions = episodes(cmdp, table, 150, rng)
    one, many = es.Monitors(cmdp.task), es.Monitors(cmdp.task)
    safe, other = es.Plan(cmdp.task.safe_policy, "safe"), es.Plan(TablePolicy(table), "search", utility_bound=1.5)
    acted = rng.random(150) < 0.5
    for k in range(150):
        one.watch(safe if acted[k] else other, es.Episode(states[k], actions[k]))
    many.watch_batch(states, actions, np.where(acted, math.nan, 1.5), acted, ~acted)
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, many.state()[name], err_msg=name)


def test_lost_and_reordered_reports_raise_no_alarm():
    cmdp = chain()
    for seed in range(20):
        rng, monitors = np.random.default_rng(seed), es.Monitors(cmdp.task)
        states, actions = coins(cmdp.task.safe_policy.table(), cmdp.P, cmdp.task, 2000, rng)
        arrived = rng.permutation(np.flatnonzero(rng.random(2000) < 0.7))
        yes = np.ones(len(arrived), dtype=bool)
        assert monitors.watch_batch(states[arrived], actions[arrived], np.full(len(yes), math.nan), yes, ~yes) == []


def test_restored_monitors_go_on_bit_for_bit():
    cmdp = es.make("linear", seed=2, num_states=12)
    rng, table = np.random.default_rng(6), half_as_useful(cmdp, 0.05)
    task = told(cmdp, safe=table)
    parts = [coins(table, cmdp.P, task, n, rng) for n in (700, 900)]
    whole, first, second = es.Monitors(task), es.Monitors(task), es.Monitors(task)
    for monitors, run in ((whole, parts), (first, parts[:1])):
        for states, actions in run:
            yes = np.ones(len(states), dtype=bool)
            monitors.watch_batch(states, actions, np.full(len(yes), math.nan), yes, ~yes)
    second.restore(first.state())
    yes = np.ones(900, dtype=bool)
    second.watch_batch(*parts[1], np.full(900, math.nan), yes, ~yes)
    assert second.alarms == whole.alarms and whole.alarms
    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, second.state()[name], err_msg=name)
        assert array.dtype != object


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.pop("utilities.drift.ends"), "lacks 'utilities.drift.ends'"),
        (lambda state: state.update(more=np.zeros(1)), "has an unknown 'more'"),
        (lambda state: state.update({"utilities.drift.sums": np.zeros(5)}), "kind or shape"),
        (lambda state: state.update({"utilities.drift.sums": np.array(["a"] * 4)}), "kind or shape"),
        (lambda state: state["utilities.purse.log_wealth"].fill(np.nan), "not finite"),
        (lambda state: state.update({"line.bits": np.ones(3, dtype=np.int64)}), "do not fit each other"),
        (lambda state: state.update(waiting=np.frombuffer(b"[[1, 2]]", np.uint8)), "what is waited for"),
        (lambda state: state.update(promise=state["promise"] + 1), "another task"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage, message):
    cmdp = es.make("tabular")
    monitors = es.Monitors(cmdp.task)
    watched(monitors, cmdp, cmdp.task.safe_policy.table(), 50, np.random.default_rng(0))
    before, state = monitors.state(), monitors.state()
    damage(state)
    with pytest.raises(ValueError, match=message):
        monitors.restore(state)
    for name, array in monitors.state().items():
        np.testing.assert_array_equal(array, before[name])


# Halting


def test_a_halted_agent_deploys_the_incumbent_until_a_person_says_otherwise():
    cmdp = es.make("tabular", seed=3)
    agent = es.OPSE(cmdp.task, constants())
    es.run(cmdp, agent, num_episodes=200)
    assert agent.plan().source != "safe"
    session = OpenSession(agent)
    session.halt("the pump is broken")
    plan = session.plan()
    assert (plan.source, plan.reason, plan.id) == ("safe", "halted: the pump is broken", -1)
    assert plan.policy is cmdp.task.safe_policy
    session.halt("and the valve")
    assert session.plan().reason == "halted: and the valve"
    session.resume_exploring("mended")
    assert session.decide().source != "safe"
    with pytest.raises(ValueError, match="reason in words"):
        session.halt("")


def test_a_monitor_is_asked_by_being_listed(monkeypatch):
    """Before, one that was not named in three more places was mute."""
    alarm_at = np.zeros(1, dtype=np.int64)
    new = WatchedTest(0.0, lambda watch: (alarm_at, 0), lambda watch, at: f"by {at}", lambda watch: {"moons": 2})
    monkeypatch.setitem(READINGS, "new", new)
    monkeypatch.setitem(STATEMENTS, "new", Statement("the moon is new", "nothing", new, halts=False))
    monitors = es.Monitors(chain().task)
    plan, episode = es.Plan(monitors.task.safe_policy, "safe"), es.Episode([0, 0, 0], [0, 0])
    assert monitors.watch(plan, episode) == []
    alarm_at[0] = 7
    assert monitors.watch(plan, episode) == [es.Alarm("new", "by 7", 1, False)]  # as soon as the next is deployed
    assert monitors.status()["new"] == {"moons": 2, "false_alarm": 0.0, "alarm_at": 7}
    assert "the moon is new; " in monitors.statements()["new"]


def test_a_monitor_cannot_be_listed_without_saying_how_it_is_asked():
    with pytest.raises(TypeError, match="reading"):
        Statement("the moon is full", "nothing")
    with pytest.raises(TypeError, match="figures"):
        WatchedTest(1 / 12, lambda watch: None, lambda watch, at: "")
    assert set(get_args(Watched)) == STATEMENTS.keys()
    assert {what for what, one in STATEMENTS.items() if one.share} == READINGS.keys()


def _of_a_coin_that_always_falls_alike():
    monitors = es.Monitors(chain().task)
    both = es.MixturePolicy((TablePolicy(table_with(1.5)), monitors.task.safe_policy), (0.5, 0.5))
    for _ in range(100):
        monitors.watch(es.Plan(both, "search", utility_bound=1.0), es.Episode([0, 0, 0], [0, 0], component=0))
    return monitors


def _of_a_stretch(cmdp, task, means, *how):
    monitors, rng = es.Monitors(task), np.random.default_rng(0)
    for mean in means:
        watched(monitors, cmdp, table_with(mean), 3000, rng, *how)
    return monitors


def _of_bent_features():
    bent = two_features([0.8, 0.1, 0.8])
    monitors = es.Monitors(bent.task)
    watched(monitors, bent, bent.task.safe_policy.table(), 5000, np.random.default_rng(0))
    return monitors


FAULTS = {  # by the monitor that must see it
    "incumbent": lambda: _of_a_stretch(chain(), chain().task, [1.0]),
    "threshold": lambda: _of_a_stretch(chain(), chain().task, [0.4], False, 0.6),
    "bound": lambda: _of_a_stretch(chain(), chain().task, [0.52], False, 0.7),
    "spell": lambda: _of_a_stretch(chain(), chain().task, [1.5, 0.4], False),
    "drift": lambda: _of_a_stretch(chain(b=0.1), told(chain(b=0.1), slack=0.3), [1.2, 0.8]),
    "coin": _of_a_coin_that_always_falls_alike,
    "residual": _of_bent_features,
}


@pytest.mark.parametrize("what", READINGS)
def test_every_monitor_that_is_listed_sees_a_fault(what):
    """One that is listed and not fed, or has no fault here, fails."""
    assert what in {alarm.what for alarm in FAULTS[what]().alarms}


def test_alarms_that_were_raised_halt_the_next_run_too():
    cmdp = es.make("streaming", seed=1)
    task = told(cmdp, safe=half_as_useful(cmdp, 0.3))
    monitors, build = es.Monitors(task), es.Constants.paper("streaming").replace(C_u=20.0)
    es.run(cmdp, es.OPSE(task, build, es.Doubling(0.3)), 1000, monitors=monitors)
    assert monitors.alarms
    again = es.run(cmdp, es.OPSE(task, build, es.Doubling(0.3)), 20, monitors=monitors)
    assert set(again.plan_ids) == {-1}


@pytest.mark.parametrize(
    "certifier", [es.certify.Model(), es.certify.Observation(), es.certify.FreshData(), es.certify.Box()]
)
def test_halting_works_under_every_certifier(certifier):
    cmdp = es.make("streaming", seed=3)
    agent = es.OPSE(cmdp.task, constants(), certifier=certifier)
    es.run(cmdp, agent, num_episodes=100)
    session = OpenSession(agent)
    session.halt("stop")
    assert {session.plan().source for _ in range(20)} == {"safe"}
    session.resume_exploring("go on")
    assert session.decide().id == agent.plan().id


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("certifier", [es.certify.Model(), es.certify.Observation()])
def test_a_watched_run_without_alarm_is_the_same_run(name, certifier):
    cmdp = es.make(name, seed=2)
    records = []
    for watch in (False, True):
        agent = es.OPSE(cmdp.task, es.Constants.paper(name), certifier=certifier)
        records.append(es.run(cmdp, agent, 150, 4, monitors=es.Monitors(agent.task) if watch else None))
    for column in records[0].columns():
        np.testing.assert_array_equal(getattr(records[0], column), getattr(records[1], column))
    assert records[1].settings["alarms"] == "none" and "alarms" not in records[0].settings


def test_a_lying_incumbent_halts_the_run_and_the_record_and_report_say_so():
    cmdp = es.make("streaming", seed=1)
    task = told(cmdp, safe=half_as_useful(cmdp, 0.3))
    agent = es.OPSE(task, es.Constants.paper("streaming").replace(C_u=20.0), es.Doubling(0.3))
    monitors = es.Monitors(task)
    record = es.run(cmdp, agent, 1000, monitors=monitors)
    assert monitors.alarms[0].what == "incumbent"
    after = monitors.alarms[0].after
    assert set(record.sources[after:]) == {"safe"} and set(record.plan_ids[after:]) == {-1}
    assert "the incumbent is not as safe as stated" in record.settings["alarms"]
    assert "monitors raised an alarm in 1 of 1 runs" in notes([record])[0]


def test_the_command_line_watches_and_says_so():
    words = ["run", "--env", "streaming", "--episodes", "50", "--replan", "doubling:0.3", "--json"]
    watched, free = (CliRunner().invoke(app, [*words, *more]) for more in (["--monitors"], []))
    assert json.loads(watched.stdout)["alarms"] == "none"
    assert "alarms" not in json.loads(free.stdout)


def test_monitors_of_another_task_are_refused():
    cmdp = es.make("tabular")
    agent = es.OPSE(cmdp.task, constants())
    with pytest.raises(ValueError, match=r"build them from agent\.task"):
        es.run(cmdp, agent, 5, monitors=es.Monitors(es.make("tabular").task))
    with pytest.raises(TypeError, match=r"es\.Task"):
        es.Monitors(cmdp)
    with pytest.raises(ValueError, match="delta"):
        es.Monitors(cmdp.task, delta=1.5)


# States that are not listed


def test_states_that_are_not_listed_are_watched_too():
    def features(state):
        return np.eye(2)

    def sample(h, state, action, rng):
        return float(rng.random() < (0.9 if action == 0 else 0.2))

    cmdp = es.SampledCMDP(
        features, lambda h, s: np.array([0.0, 1.0]), lambda h, s: np.array([s, s]), sample, 3, 2, 0.0, 0.5,
        lambda h, s: np.array([1.0, 0.0]), 1.6,
    )  # fmt: skip
    agent = es.Fixed(cmdp.task, "incumbent")
    monitors = es.Monitors(cmdp.task)
    record = es.run(cmdp, agent, 400, monitors=monitors)  # the incumbent has 1.8, and is said to have 2.1
    assert [alarm.what for alarm in monitors.alarms] == ["incumbent"]
    assert record.sources[-1] == "safe" and record.plan_ids[-1] == -1
    assert monitors.status()["residual"]["episodes"] == 400


# Bandits


def bandit_monitors(slack, num_rounds=2000, seed=0):
    bandit = es.bandits.make("finite", seed=seed)
    task = bandit.task
    said = es.bandits.BanditTask(
        task.dim, task.actions, task.threshold, task.safe_policy, task.slack + slack, task.noise, task.norm_bound
    )
    plan = es.bandits.Incumbent(task).plan()
    monitors, rng = es.bandits.Monitors(said), np.random.default_rng(seed)
    for _ in range(num_rounds):
        action = plan.draw(rng)
        monitors.watch(plan, float(action @ bandit.theta_u) + task.noise * rng.normal())
    return [alarm.what for alarm in monitors.alarms]


def test_bandits_honest_incumbents_stay_quiet_and_lying_ones_do_not():
    assert all(bandit_monitors(0.0, seed=seed) == [] for seed in range(10))
    assert all(bandit_monitors(0.3, seed=seed) == ["incumbent"] for seed in range(3))


def test_a_watched_bandit_run_is_the_same_run_and_can_be_halted(tmp_path):
    bandit = es.bandits.make("finite", seed=0)
    records = []
    for watch in (False, True):
        agent = es.bandits.OPLBSP(bandit.task, radius=0.3)
        monitors = es.bandits.Monitors(agent.task) if watch else None
        records.append(es.bandits.run(bandit, agent, 1500, 1, monitors=monitors))
    np.testing.assert_array_equal(records[0].utility_values, records[1].utility_values)
    assert records[1].settings["alarms"] == "none" and agent.plan().source == "search"
    agent.save(tmp_path / "agent.npz")
    again = es.bandits.OPLBSP(bandit.task, radius=0.3)
    again.restore(tmp_path / "agent.npz")
    assert again.plan().source == "search"
    monitors.alarms.append(es.Alarm("incumbent", "stop", 1, True))
    record = es.bandits.run(bandit, again, 50, 1, first_round=1500, monitors=monitors)
    assert set(record.sources) == {"safe"} and record.settings["reasons"] == "50 x halted"


def test_bandit_policies_below_their_bound_alarm():
    bandit = es.bandits.make("finite", seed=0)
    arm = bandit.task.arms(0)[:1]
    true = float(arm[0] @ bandit.theta_u)
    plan = es.bandits.BanditPlan(arm, np.ones(1), "search", utility_bound=true + 0.2)
    monitors, rng = es.bandits.Monitors(bandit.task), np.random.default_rng(0)
    for _ in range(3000):
        monitors.watch(plan, true + bandit.task.noise * rng.normal())
    assert "bound" in {alarm.what for alarm in monitors.alarms}
    with pytest.raises(es.InvalidEpisode, match="one finite number"):
        monitors.watch(plan, math.nan)


def test_after_an_alarm_in_a_simulation_what_was_promoted_acts_no_more():
    """As in a session: what an alarm contradicts may be what promoted it."""

    class AlarmAtFive:
        def __init__(self, task):
            self.task, self.seen, self.standing, self.alarms = task, 0, [], []

        def watch_report(self, plan, *report):
            self.seen += 1
            return [es.Alarm("range", "seen", self.seen, True)] if self.seen == 5 else []

        def settings(self):
            return {}

    cmdp = es.LinearCMDP(
        np.ones((1, 1, 2, 1)), np.array([[[0.0, 1.0]]]), np.array([[[1.0, 0.9]]]), threshold=0.5,
        safe_policy=np.array([[[1.0, 0.0]]]), initial_state=0,
    )  # fmt: skip
    agent = es.OPSE(cmdp.task, certifier=es.certify.Observation())
    agent.add_candidate("mine", es.TablePolicy([[[0.0, 1.0]]]))
    es.run(cmdp, agent, 300, seed=1)
    agent.promote("mine")
    record = es.run(cmdp, agent, 20, seed=2, monitors=AlarmAtFive(agent.task))
    assert (record.acting[5:] == "incumbent").all() and agent.promoted == "incumbent"
