"""Monitors when reports are late, lost, repeated or wrong: no false alarm, and nothing that is true goes unseen."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.deployment.frame_kinds import Kind
from episafe.kernels.claim_wealth import NUM_BLOCKS, OF_THRESHOLD
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.residual_losses import EPOCH
from episafe.kernels.utility_tests import CHECKED, Batch, Promise, expect, nothing_seen, take_in
from episafe.monitors.base import LONGEST, ReportLine
from episafe.monitors.monitor_state import Turn
from episafe.monitors.residual_test import FIRST_EPOCH, ResidualMonitor
from episafe.monitors.statements import STATEMENTS
from episafe.problems.policy import TablePolicy
from test_journal import frames_of, observing
from test_monitors import bandit_monitors, two_features

SAFE, TRIED = 0.9, 0.1  # how often the incumbent and a candidate succeed


def gamble():
    """One step: success or failure, by action. The incumbent has b + ξ exactly."""
    utility = np.array([[[1.0, 0.0]]])
    return es.LinearCMDP(np.ones((1, 1, 2, 1)), 1 - utility, utility, threshold=0.5, safe_policy=[[[SAFE, 1 - SAFE]]])


TASK = gamble().task
CANDIDATE = TablePolicy([[[TRIED, 1 - TRIED]]])
HALF = es.Plan(es.MixturePolicy((CANDIDATE, TASK.safe_policy), (0.5, 0.5)), "search", utility_bound=0.5)
ALONE = es.Plan(TASK.safe_policy, "safe")


def outcome(success, component=None):
    return es.Episode([0, 0], [0 if success else 1], component=component)


def lived(monitors, rng, count, plan, delay, rates=(TRIED, SAFE), tossed=True):
    """Deployments, reported after `delay(rng, k, success, component)` more of them, never if that is None.

    `tossed`: whether the coin is known beforehand. After how many an alarm is raised.
    """
    due, mixed = {}, len(plan.policy.components) > 1
    for k in range(count):
        component = int(rng.random() < plan.policy.weights[-1]) if mixed else 0
        success = rng.random() < (rates[component] if mixed else rates[1])
        monitors.expect(k, plan, component if tossed else None)
        after = delay(rng, k, success, component)
        if after is not None:
            due.setdefault(k + after, []).append((k, outcome(success, component if mixed else None)))
        for number, seen in due.pop(k, []):
            monitors.report(number, seen)
        if monitors.alarms:
            return k + 1
    return math.inf


DELAYS = {
    "failures first": lambda rng, k, success, component: 200 if success else 0,
    "successes lost": lambda rng, k, success, component: None if success and rng.random() < 0.5 else 0,
    "candidates first": lambda rng, k, success, component: 200 if component else 0,
    "now these are lost, now those": lambda rng, k, success, component: None if success == (k < 150) else 0,
}


# False alarms


@pytest.mark.parametrize("why", DELAYS)
def test_nothing_that_delays_or_loses_reports_raises_a_false_alarm(why):
    """Every claim is just true. δ = 0.2, so that 15 runs show a level that is not kept; before, most alarmed."""
    false = 0
    for seed in range(15):
        rng, monitors = np.random.default_rng(seed), es.Monitors(TASK, delta=0.2)
        false += lived(monitors, rng, 300, (HALF, HALF, ALONE)[seed % 3], DELAYS[why], tossed=seed % 2 == 0) < math.inf
    assert false <= 0.2 * 15


def test_a_session_with_failures_reported_first_is_not_halted():
    """An honest incumbent, 200 deployments under way; who sees what arrives alone alarms in every run."""
    halted = deceived = 0
    for seed in range(5):
        rng, blind = np.random.default_rng(seed), es.Monitors(TASK)
        with es.open(None, agent=es.Fixed(TASK, "incumbent")) as session:
            due = {}
            for k in range(300):
                made, success = session.deploy(rng), rng.random() < SAFE
                due.setdefault(k + 200 * success, []).append((made.id, outcome(success)))
                for number, seen in due.pop(k, []):
                    session.learn(seen, deployment=number)
                    blind.watch(ALONE, seen)
            halted += bool(session.status().stopped)
        deceived += bool(blind.alarms)
    assert (halted, deceived) == (0, 5)


def test_bandits_too():
    """Noise that is reported first where it is bad; a bandit that lies is found as before."""
    bandit = es.bandits.make("finite", seed=0)
    plan = es.bandits.Incumbent(bandit.task).plan()
    for seed in range(5):
        rng, monitors, blind = np.random.default_rng(seed), es.bandits.Monitors(bandit.task), None
        blind, late = es.bandits.Monitors(bandit.task), []
        for k in range(300):
            monitors.expect(k, plan)
            noise = bandit.task.noise * rng.normal()
            seen = (None, 0.0, float(plan.draw(rng) @ bandit.theta_u) + noise)
            late.append((k, seen))
            if noise < 0:
                monitors.report(*late.pop()[:1], *seen)
                blind.watch_report(plan, *seen)
        for number, seen in late:
            monitors.report(number, *seen)
        assert monitors.alarms == [] and blind.alarms
    assert bandit_monitors(0.3) == ["incumbent"]


# What is true is found


def test_a_deviating_incumbent_is_found_as_much_later_as_reports_are_late():
    """The prefix that was reported is as good as ever: what is pending after it costs nothing."""
    for seed in range(10):
        late = [
            lived(es.Monitors(TASK), np.random.default_rng(seed), 1500, ALONE, lambda *_, d=d: d, rates=(0.0, 0.7))
            for d in (0, 20, 100)
        ]
        assert late[0] < math.inf and late == [late[0], late[0] + 20, late[0] + 100]


def test_a_deviating_mixture_is_found_although_reports_are_lost():
    lose = lambda rng, k, success, component: None if rng.random() < 0.05 else 20  # noqa: E731
    for seed in range(5):
        found, monitors = math.inf, es.Monitors(TASK)
        found = lived(monitors, np.random.default_rng(seed), 600, HALF, lose, rates=(0.0, 0.6))
        assert found < 600 and {alarm.what for alarm in monitors.alarms} <= {"threshold", "bound", "incumbent"}


def test_drift_is_found_in_the_order_of_deployments():
    cmdp = es.LinearCMDP(
        np.ones((1, 1, 2, 1)), [[[0.0, 1.0]]], [[[1.0, 0.0]]], threshold=0.05, safe_policy=[[[0.5, 0.5]]]
    )
    task = es.Task(
        1, 1, 2, cmdp.task.reward, None, 0, es.Constraint(cmdp.task.utility, 0.05, 0.05), cmdp.task.safe_policy
    )
    plan = es.Plan(task.safe_policy, "safe")
    for delay, least in ((0, 0), (20, 20), (LONGEST + 100, math.inf)):
        rng, monitors, found, due = np.random.default_rng(0), es.Monitors(task), math.inf, {}
        for k in range(2500):
            monitors.expect(k, plan, 0)
            due[k + delay] = k, outcome(rng.random() < (0.8 if k < 1000 else 0.4))
            if k in due:
                monitors.report(*due.pop(k))
            if monitors.alarms:
                found = k - 1000
                break
        assert [alarm.what for alarm in monitors.alarms] in (["drift"], [])
        assert found == least if math.isinf(least) else least <= found < 300 + least


def test_where_an_interval_begins_does_not_depend_on_what_is_held_back():
    """The caller tosses the coin: whether the incumbent acted comes with the report, or never."""
    begun = []
    for hides in (False, True):
        rng, monitors = np.random.default_rng(0), es.Monitors(TASK)
        for k in range(100):
            component = int(rng.random() < 0.5)
            monitors.expect(k, HALF)
            monitors.report(k, outcome(True, None if hides and k < 40 else component))
        begun.append(monitors.status()["drift"])
    assert begun[0]["intervals"] == begun[1]["intervals"] == 4
    assert [figures["missing"] for figures in begun] == [0, 40]


# The formulas


def wealths(factors):
    """ln of the mean over bets of the product of a prefix, for every prefix; factors (n, B)."""
    return np.logaddexp.reduce(np.cumsum(np.log(factors), axis=0), axis=1) - math.log(len(BETS))


@pytest.mark.parametrize("under_way", [5, 60, 1000])
def test_the_wealth_is_the_largest_over_prefixes_with_the_missing_at_their_best(under_way):
    """Against the products written out, after every report; with more than fit into blocks, never more."""
    promise, log_term = Promise(0.6, -math.inf, 1.0), math.log(200)
    for seed in range(4):
        rng, seen = np.random.default_rng(seed), nothing_seen()
        factors, waiting = np.empty((0, len(BETS))), []
        for k in range(1200):
            assert expect(seen.purse, promise, CHECKED, math.nan, 0, min(waiting, default=k)) == k
            waiting.append(k)
            factors = np.vstack([factors, 1 - BETS])
            if len(waiting) < under_way and rng.random() < 0.4:
                continue
            place = waiting.pop(0 if k - waiting[0] > under_way else int(rng.integers(len(waiting))))
            utility = rng.random() < 0.45
            factors[place] = 1 + BETS * (0.6 - utility) / 0.4
            numbers = (float(utility), math.nan, CHECKED, 0.0, place, CHECKED)
            take_in(seen, promise, Batch(*(np.array([n]) for n in numbers)), min(waiting, default=k + 1), log_term)
            reached = wealths(factors).max() >= log_term
            alarm = bool(seen.purse.counts[OF_THRESHOLD, 1])
            assert reached if alarm else True
            if under_way < NUM_BLOCKS // 2:
                assert alarm == reached
            if reached:
                break
        assert reached and int(seen.purse.pending.sum()) == len(waiting)


def test_a_report_that_comes_after_all_corrects_the_wealth_exactly():
    """Thousands lost: nothing underflows; when they come, it is as if they had never been late."""
    promise = Promise(0.6, -math.inf, 1.0)
    rng = np.random.default_rng(0)
    utilities = (rng.random(5000) < 0.62).astype(float)
    late, prompt = nothing_seen(), nothing_seen()
    one = lambda k: Batch(*(np.array([n]) for n in (utilities[k], math.nan, CHECKED, 0.0, k, CHECKED)))  # noqa: E731
    for k in range(5000):
        for seen in (late, prompt):
            expect(seen.purse, promise, CHECKED, math.nan, 0, 0 if seen is late else k)
        take_in(prompt, promise, one(k), k + 1, math.inf)
    assert late.purse.pending.sum() == 5000 and np.isfinite(late.purse.log_wealth).all()
    for k in rng.permutation(5000):
        take_in(late, promise, one(k), 0, math.inf)
    whole = [seen.purse.log_wealth.sum(axis=0) for seen in (late, prompt)]
    np.testing.assert_allclose(*whole, atol=1e-9)
    assert late.purse.pending.sum() == 0


def test_the_line_hands_out_reports_in_their_order_and_gives_up_the_oldest():
    line = ReportLine()
    for k in range(5):
        assert line.expect(k % 2 == 0) == []
    assert line.put(2, Turn(True, False, 0.2)) == []
    assert [turn.utility for turn in line.put(0, Turn(True, False, 0.0))] == [0.0]
    assert (line.first, len(line)) == (1, 4)
    assert [turn.incumbent for turn in line.put(1, Turn(False))] == [False, True]
    given_up = [turn for _ in range(LONGEST) for turn in line.expect(True)]
    assert len(given_up) == 2 and all(turn.waits for turn in given_up) and len(line) == LONGEST
    assert line.put(3, Turn(True, False, 1.0)) == [] and len(line) == LONGEST  # too late


# Sessions


def test_reports_of_deployments_before_a_checkpoint_are_shown(tmp_path):
    """Before, all but those of the plan in force were learned and not seen."""
    rng = np.random.default_rng(0)
    cmdp = es.make("streaming", seed=3)
    build = lambda: es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))  # noqa: E731
    from test_session import played

    with es.open(tmp_path, agent=build()) as session:
        made = []
        for _ in range(20):
            made.append(session.deploy(rng))
            other = session.deploy(rng)
            session.learn(played(other, rng), deployment=other.id)
        assert len({one.plan.id for one in made}) > 3
        session._journal.checkpoint(session.parts)
    for keep in (True, False):  # from the checkpoint, and from the log alone
        if not keep:
            for path in tmp_path.glob("checkpoint*"):
                path.unlink()
        with es.open(tmp_path, agent=build()) as session:
            assert session.status().monitors["waiting"] == (20 if keep else 10)
            for one in made[:10] if keep else made[10:]:
                session.learn(played(one, rng), deployment=one.id)
    with es.open(tmp_path, agent=build()) as session:
        seen = session.status()
        assert (seen.monitors["episodes"], seen.monitors["waiting"], seen.num_missing) == (40, 0, 0)


def test_monitors_with_reports_under_way_go_on_from_their_state_bit_for_bit():
    rng, cmdp = np.random.default_rng(0), two_features([0.2, 0.5, 0.8])
    plan = es.Plan(es.MixturePolicy((cmdp.task.safe_policy, cmdp.task.safe_policy), (0.3, 0.7)), "search")
    whole, first = es.Monitors(cmdp.task), es.Monitors(cmdp.task)
    episodes = [
        es.Episode(rng.integers(3, size=3), rng.integers(2, size=2), component=int(k))
        for k in rng.integers(2, size=400)
    ]
    order = sorted(range(400), key=lambda k: k + rng.integers(60))
    for k in range(400):
        for monitors in (whole, first):
            monitors.expect(k, plan, None if k % 3 else episodes[k].component)
    for position, k in enumerate(order):
        if position == 150:
            second = es.Monitors(cmdp.task)
            second.restore(first.state())
            first = second
        for monitors in (whole, first):
            monitors.report(k, episodes[k])
    state = whole.state()
    for name, array in first.state().items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)
    assert first.status()["residual"]["episodes"] == 400 and first.status()["waiting"] == 0


def test_a_report_counts_once_and_only_for_a_deployment_that_it_surely_is_of(tmp_path):
    agent = lambda: es.Fixed(TASK, "incumbent")  # noqa: E731
    with es.open(tmp_path, agent=agent()) as session:
        plans = [session.plan() for _ in range(3)]
        session.learn(outcome(True), deployment=plans[1].deployment)
        with pytest.raises(es.InvalidEpisode, match="reported or abandoned before"):
            session.learn(outcome(False), deployment=plans[1].deployment)
        session.learn(outcome(False), plan_id=plans[0].id)  # of 0 or of 2: nobody knows
        assert (
            session.status().monitors["incumbent"] | {"episodes": 1, "pending": 2}
            == session.status().monitors["incumbent"]
        )
        session.learn(outcome(True), plan_id=plans[0].id)  # the last one
        for _ in range(5):
            session.learn(outcome(False), plan_id=plans[0].id)  # beyond its deployments
        figures = session.status().monitors["incumbent"]
        assert (figures["episodes"], figures["pending"], figures["mean"]) == (2, 1, 1.0)
        session.abandon(session.plan().deployment)
        assert session.status().monitors["incumbent"]["pending"] == 2
    for path in tmp_path.glob("checkpoint*"):
        path.unlink()
    with es.open(tmp_path, agent=agent()) as session:
        assert session.status().monitors["incumbent"] == figures | {"pending": 2}


def test_memory_is_bounded_however_many_reports_are_lost(monkeypatch):
    monkeypatch.setattr("episafe.monitors.base.MOST_WAITING", 300)
    monitors = es.Monitors(TASK)
    for k in range(2000):
        monitors.expect(k, ALONE, 0)
    status = monitors.status()
    assert (status["waiting"], status["incumbent"]["pending"], len(monitors.line)) == (300, 2000, LONGEST)
    assert monitors.report(5, outcome(True)) == [] and monitors.status()["incumbent"]["episodes"] == 0
    monitors.report(1999, outcome(True))
    assert monitors.status()["incumbent"] | {"episodes": 1, "pending": 1999} == monitors.status()["incumbent"]


# The coin

FAULTS = {
    "the candidate always": lambda rng, k, p: 0,
    "the incumbent always": lambda rng, k, p: 1,
    "one half": lambda rng, k, p: int(rng.random() < 0.5),
    "by turns": lambda rng, k, p: k % 2,
    "the other way round": lambda rng, k, p: int(rng.random() < p),
}


def coins(monitors, rng, toss, p, count, tossed=True):
    """Mixtures with weight p on the candidate; after how many an alarm is raised."""
    plan = es.Plan(es.MixturePolicy((CANDIDATE, TASK.safe_policy), (p, 1 - p)), "search")
    for k in range(count):
        component = toss(rng, k, p)
        monitors.expect(k, plan, component if tossed else None)
        monitors.report(k, outcome(True, component))
        if monitors.alarms:
            return k + 1
    return math.inf


@pytest.mark.parametrize("tossed", [True, False], ids=["by the session", "by the caller"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_coin_that_is_not_the_one_of_the_plan_is_found(fault, tossed):
    weight = 0.5 if fault == "by turns" else 0.3
    monitors = es.Monitors(TASK)
    assert coins(monitors, np.random.default_rng(0), FAULTS[fault], weight, 400, tossed) < 400
    assert [alarm.what for alarm in monitors.alarms] == ["coin"] and monitors.alarms[0].halts


def test_true_coins_raise_false_alarms_as_rarely_as_stated():
    """The share of "coin" in δ = 0.6 is 0.1."""
    true = lambda rng, k, p: int(rng.random() >= p)  # noqa: E731
    false = sum(coins(es.Monitors(TASK, 0.6), np.random.default_rng(seed), true, 0.2, 100) < 100 for seed in range(60))
    assert false <= 0.1 * 60 + 3 * math.sqrt(0.1 * 0.9 * 60)


def test_a_component_without_weight_may_never_act():
    monitors = es.Monitors(TASK)
    assert coins(monitors, None, lambda rng, k, p: 1, 1.0, 5) == 1


def test_a_coin_with_one_seed_for_all_halts_a_session(tmp_path):
    """Before, nobody looked at the coins that are written down."""
    from test_session import played

    rng = np.random.default_rng(1)
    with es.open(tmp_path, agent=observing(), sync="plans") as session:
        while session.status().started < 400 and not session.status().stopped:
            made = session.deploy(np.random.default_rng(0))
            session.learn(played(made, rng), deployment=made.id)
        assert "components are not drawn by the weights" in session.status().stopped
        assert session.deploy(rng).plan.source == "safe"
    with es.open(tmp_path, agent=observing()) as session:
        assert session.status().monitors["coin"]["alarm_at"] and session.plan().id == -1


# Ranges


def negative(session, value):
    made = session.deploy(np.random.default_rng(0))
    with pytest.raises(es.InvalidEpisode, match="sum to 0 or more"):
        session.learn(es.Episode([0, 0], [0], utilities=[value]), deployment=made.id)
    return made


def certified():
    return es.OPSE(TASK, es.Constants.proposing(), certifier=es.certify.Observation())


def test_a_negative_utility_halts_and_its_deployment_stays_pending(tmp_path):
    """Before, learn refused it and nobody was told."""
    with es.open(tmp_path, agent=certified()) as session:
        made = negative(session, -0.25)
        status = session.status()
        assert "an episode has the utility -0.25, outside [0, 1], and was refused" in status.stopped
        assert (status.num_missing, status.reported, status.monitors["waiting"]) == (1, 0, 1)
        assert session.deploy(np.random.default_rng(0)).plan.id == -1 and made.plan.id == 0
        with pytest.raises(es.InvalidEpisode):
            session.learn(es.Episode([0, 0], [0], utilities=[-0.5]), deployment=made.id)
        assert sum("range" in fault for fault in session.status().faults) == 1  # halted already
    assert [frame.kind for frame in frames_of(tmp_path)].count(Kind.HALT) == 1
    with es.open(tmp_path, agent=certified()) as session:
        assert "outside [0, 1]" in session.status().stopped
        session.resume_exploring("the sensor was mended")
        negative(session, -0.25)
        assert "outside [0, 1]" in session.status().stopped


@pytest.mark.parametrize("false_alarm", [0.01, 0])
def test_a_negative_total_halts_whether_anybody_watches_or_not(false_alarm):
    """What is refused counts as 0. Who goes on exploring proves a utility that no policy has; by its total alone, too,
    where the task tells no signals."""
    session = es.open(None, es.OPSE(unknown_signals(), certifier=es.certify.Observation()), false_alarm=false_alarm)
    made = session.deploy(np.random.default_rng(0))
    with pytest.raises(es.InvalidEpisode, match="sum to 0 or more"):
        session.learn(es.Episode.of_totals(-1.0, component=made.component), deployment=made.id)
    assert "outside [0, 1], and was refused" in session.stopped


def unknown_signals():
    """A task of one step that tells neither rewards nor utilities."""
    problem = es.SampledCMDP(
        features=lambda state: np.eye(2), reward=None, utility=None, sample=lambda h, state, action, rng: 0,
        horizon=1, num_actions=2, initial_state=0, threshold=0.5, slack=0.4, safe_policy=lambda h, state: np.eye(2)[0],
    )  # fmt: skip
    return problem.task


def test_a_total_alone_is_watched_where_the_task_tells_no_signals():
    """It broke the session: there are no steps whose range could be looked at."""
    session = es.open(None, es.OPSE(unknown_signals(), certifier=es.certify.Observation()))
    session.halt("so that the incumbent acts alone")
    session.learn(es.Episode.of_totals(0.9, 0.1), deployment=session.deploy(np.random.default_rng(0)).id)
    assert (session.broken, session.status().reported) == ("", 1)


def test_a_range_that_is_broken_while_a_person_has_halted_ends_what_was_promoted():
    rng, agent = np.random.default_rng(0), es.Rollout(0.5, 0.2, {"v2": "v2"}, "v1", utility_max=1.0)
    session = es.open(None, agent)
    while agent.bounds()["v2"] < 0.5:
        session.learn(es.Episode.of_totals(1.0), deployment=session.deploy(rng).id)
    session.promote("v2", "proved")
    session.halt("a person looks at it")
    deployed = session.deploy(rng)
    assert deployed.policy.name == "v2"
    for total in (1.5, 10**400):  # the second is no number that a float holds: it broke the session
        with pytest.raises(es.InvalidEpisode):
            session.learn(es.Episode.of_totals(total), deployment=deployed.id)
    assert session.deploy(rng).policy.name == "incumbent" and not session.broken


@pytest.mark.parametrize("total", [[0, [1], 0], (None, (0.5, 0.5)), {}, 10**400])
def test_a_total_that_is_no_number_is_refused_and_breaks_nothing(total):
    for task in (TASK, unknown_signals()):
        session = es.open(None, es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation()))
        made = session.deploy(np.random.default_rng(0))
        with pytest.raises(es.InvalidEpisode):
            session.learn(es.Episode([0, 0], [0], [0.5], [0.5], total_utility=total), deployment=made.id)
        assert session.status().stopped == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"utilities": [-0.25, 0.0]}, {"utilities": [math.nan]}, {"utilities": ["-1"]}, {"states": [0, 3]},
        {"actions": [7]}, {"states": [0, 3], "utilities": [-0.25]}, {"utilities": None, "actions": [0, 0]},
    ],
)  # fmt: skip
def test_a_report_that_does_not_fit_is_refused_and_halts_nothing(wrong):
    with es.open(None, agent=certified()) as session:
        made = session.deploy(np.random.default_rng(0))
        seen = {"states": [0, 0], "actions": [0], "utilities": [0.5]} | wrong
        with pytest.raises(es.InvalidEpisode):
            session.learn(es.Episode(**seen), deployment=made.id)
        assert session.status().stopped == "" and session.status().num_missing == 1


def test_rewards_that_the_task_tells_have_no_range():
    """They may be in any unit: what is missing here is the component."""
    with es.open(None, agent=certified()) as session:
        plan = session.plan()
        assert len(plan.policy.components) > 1
        with pytest.raises(es.InvalidEpisode, match="say which one acted"):
            session.learn(es.Episode([0, 0], [0], rewards=[37.0]), deployment=plan.deployment)
        assert session.status().stopped == ""


def test_signals_that_the_task_does_not_tell_are_watched_as_well():
    cmdp = es.SampledCMDP(
        lambda s: np.eye(2),
        None,
        None,
        lambda h, s, a, rng: 0.0,
        1,
        2,
        0.0,
        0.5,
        lambda h, s: np.array([1.0, 0.0]),
        0.3,
    )
    with es.open(None, agent=es.Fixed(cmdp.task, "incumbent")) as session:
        made = session.deploy(np.random.default_rng(0))
        with pytest.raises(es.InvalidEpisode, match="must lie in"):
            session.learn(es.Episode([0.0, 0.0], [0], rewards=[1.5], utilities=[0.5]), deployment=made.id)
        assert "rewards from 1.5 to 1.5 a step" in session.status().stopped


# Residuals


def scaled(up, size):
    """`two_features` with a column of another size: μ makes up for it, and the kernel is as linear as before."""
    cmdp = two_features(up)
    task = cmdp.task
    phi = task.phi * np.array([1.0, size])
    return cmdp.P, es.Task(2, 3, 2, task.reward, phi, 0, task.constraint, task.safe_policy)


@pytest.mark.parametrize("size", [1e-9, 1e-150])
def test_a_column_of_any_size_raises_no_false_alarm_and_hides_nothing(size):
    """Before, 10 of 10 linear problems with a column of size 1e-9 were called not linear: it was cut off."""
    from test_monitors import coins as drawn

    for seed in range(10):
        rng = np.random.default_rng(seed)
        for up, expected in (([0.2, 0.5, 0.8], []), ([0.8, 0.1, 0.8], ["residual"])):
            P, task = scaled(up, size)
            monitors, no = es.Monitors(task), np.zeros(3000, dtype=bool)
            states, actions = drawn(task.safe_policy.table(), P, task, 3000, rng)
            alarms = monitors.watch_batch(states, actions, np.full(3000, math.nan), no, no)
            assert [alarm.what for alarm in alarms] == expected


def test_the_best_linear_fit_is_never_taken_for_worse_than_it_is():
    """Columns of sizes from 1e-12 to 1e12, some of them twice: against the fit of scaled columns."""
    rng, monitor = np.random.default_rng(0), ResidualMonitor(1, 6, 0.01)
    X = rng.random((200, 6))
    X[:, 4] = X[:, 0] + X[:, 1]
    cells, boxes = rng.integers(5, size=(200, 1)), rng.integers(16, size=(200, 1))
    sizes = np.array([1.0, 1.0, 1e-12, 1e12, 1.0, 1e-6])
    monitor.watch((X * sizes)[:, None], cells, boxes)
    began = 128  # of the second epoch
    Y = np.eye(16)[boxes[began:, 0]]
    best = ((Y - X[began:] @ np.linalg.lstsq(X[began:], Y, rcond=None)[0]) ** 2).sum()
    assert best - 2 < monitor.seen.best[0] < best + 1e-6  # rounding may count as one more column, here it does


def test_after_a_missing_episode_the_epoch_begins_anew_with_what_was_deployed_since():
    rng, monitor = np.random.default_rng(0), ResidualMonitor(1, 2, 0.01)

    def some(n):
        return rng.random((n, 1, 2)), rng.integers(5, size=(n, 1)), rng.integers(16, size=(n, 1))

    monitor.watch(*some(FIRST_EPOCH + 10))
    assert math.isfinite(monitor.status()["log_evidence"])
    monitor.miss(30)
    monitor.watch(*some(29))
    assert monitor.status()["log_evidence"] == -math.inf
    monitor.watch(*some(1))
    assert math.isfinite(monitor.status()["log_evidence"]) and monitor.seen.losses[0] == 0.0
    monitor.watch(*some(300))
    assert monitor.seen.counts[EPOCH] == 2  # the third began with 208 episodes, the next would with 416


def test_reports_that_are_held_back_do_not_make_a_linear_kernel_look_bent(monkeypatch):
    """Who withholds every episode that stays where it is leaves a law that is not linear: an epoch ends with a gap."""
    cmdp, found = two_features([0.2, 0.5, 0.8]), []
    from test_monitors import coins as drawn

    states, actions = drawn(cmdp.task.safe_policy.table(), cmdp.P, cmdp.task, 3000, np.random.default_rng(0))
    for heeded in (True, False):
        if not heeded:
            monkeypatch.setattr(ResidualMonitor, "miss", lambda self, num_deployed: None)
        monitors = es.Monitors(cmdp.task)
        for k in range(3000):
            monitors.expect(k, es.Plan(cmdp.task.safe_policy, "safe"), 0)
            if states[k, 2] != states[k, 1] or k < 200:
                monitors.report(k, es.Episode(states[k], actions[k]))
        found.append([alarm.what for alarm in monitors.alarms])
    assert found == [[], ["residual"]]


# What is said


def test_the_shares_of_the_monitors_add_up_and_the_page_names_them_all():
    assert sum(statement.share for statement in STATEMENTS.values()) == pytest.approx(1.0)
    page = (Path(__file__).parent.parent / "docs" / "monitors.md").read_text()
    monitors = es.Monitors(TASK, delta=0.06)
    assert monitors.statements().keys() == STATEMENTS.keys()
    assert "with probability at most 0.01, if given its plan" in monitors.statements()["threshold"]
    for what, statement in STATEMENTS.items():
        assert f"| {what} |" in page and monitors.status().get(what, {"false_alarm": 0})["false_alarm"] <= 0.01
        assert statement.halts == (what not in ("residual", "replay"))


# Going on after an alarm


def failing(session, count, rng):
    """Deployments that fail, until the session halts."""
    for k in range(count):
        made = session.deploy(rng)
        session.learn(replace(outcome(False), component=made.component), deployment=made.id)
        if session.stopped:
            return k + 1
    return math.inf


@pytest.mark.parametrize("reopened", ["never", "by its checkpoint", "without it", "as a kill leaves it"])
def test_whoever_goes_on_after_an_alarm_is_watched_as_before(tmp_path, reopened):
    """Each monitor spoke once in the life of a folder: after three alarms that were heeded nobody watched any more."""
    folder, rng, found = tmp_path / "live", np.random.default_rng(1), []
    session = es.open(folder, certified())
    for number in range(5):
        found.append(failing(session, 400, rng))
        session.resume_exploring(f"looked into, number {number}")
        assert not session.stopped and session.monitors.standing == []
        failing(session, 3, rng)
        if reopened == "as a kill leaves it":
            folder = Path(shutil.copytree(folder, tmp_path / f"{number}"))
        elif reopened != "never":
            session.close()
        if reopened == "without it":
            for file in folder.glob("checkpoint-*"):
                file.unlink()
        if reopened != "never":
            was, session = session.monitors.state(), es.open(folder, certified())
            assert {
                name for name, array in session.monitors.state().items() if array.tobytes() != was[name].tobytes()
            } == set()
        status = session.status().monitors
        assert (session.monitors.standing, status["begun_anew"], status["episodes"]) == ([], number + 1, 3)
    assert max(found) < 100
    assert len(session.monitors.alarms) >= 5
    session.close()
    assert es.audit(folder, agent=certified()).is_whole


@pytest.mark.parametrize("said", [[], [es.Alarm("residual", "not linear", 3, halts=False)]])
def test_a_halt_by_a_person_does_not_make_monitors_forget(said):
    """Nor while an alarm stands that halts nothing: who stopped every night saw no slow fall, in 3 of 4 lives."""
    session, rng = es.open(None, certified()), np.random.default_rng(1)
    failing(session, 5, rng)
    session.monitors.alarms += said
    session.halt("lunch")
    session.resume_exploring("back")
    assert session.status().monitors["begun_anew"] == 0 and session.status().monitors["episodes"] == 5


def test_monitors_of_an_earlier_version_that_stayed_deaf_begin_anew(tmp_path):
    session, rng = es.open(None, certified()), np.random.default_rng(1)
    failing(session, 400, rng)
    before = {name: array for name, array in session.monitors.state().items() if name != "past"}
    session.resume_exploring("seen")
    session._restore_monitors(before)
    assert session.monitors.standing == [] and failing(session, 400, rng) < 100


def test_of_several_constraints_all_begin_anew():
    task = replace(TASK, constraint=[replace(TASK.constraint, name=name) for name in ("one", "two")])
    monitors = es.Monitors(task)
    plan = es.Plan(task.safe_policy, "safe", utility_bound=np.array([0.5, 0.5]))
    for _ in range(2):
        for k in range(400):
            monitors.expect(k, plan)
            monitors.report(k, es.Episode([0, 0], [1], utilities=[[1.0, 0.0]]))
            if monitors.standing:
                break
        assert k < 100 and {alarm.says[:3] for alarm in monitors.standing} == {"two"}
        monitors.go_on()
    assert monitors.standing == [] and len(monitors.alarms) >= 2 and monitors.status()["begun_anew"] == 2


def test_a_report_of_before_counts_for_no_test_but_its_range_does():
    monitors = es.Monitors(unknown_signals())
    for k in range(3):
        monitors.expect(k, es.Plan(monitors.task.safe_policy, "safe"))
    assert [one.what for one in monitors.report(0, es.Episode.of_totals(7.0))] == ["range"]
    monitors.go_on()
    assert monitors.report(1, es.Episode.of_totals(0.5)) == [] and monitors.status()["episodes"] == 0
    assert [one.what for one in monitors.report(2, es.Episode.of_totals(7.0))] == ["range"]
