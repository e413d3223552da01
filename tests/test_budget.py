"""Budget: window sums against an oracle and an adversary; sessions, audits and runs that keep every window."""

import datetime
import json

import numpy as np
import pytest

import episafe as es
from episafe.certify.budget import Relative, Windows
from episafe.core.agent import Candidate, Proposer
from episafe.problems.moves import ListedMove
from episafe.session.state import certifier_of

B, X, LEAST = 0.9, 0.95, 0.2


def oracle(windows, t, counted, bs, n, x, floor):
    """Return the largest share by the formula, window by window; b of a window is the least since it began."""
    best = 1.0
    for a in range(max(t - n + 1, 0), t + 1):
        if a not in windows:
            windows[a] = bs[t]
        windows[a] = min(windows[a], bs[t])
        spent = 0.0
        for s in range(a, t):
            spent += counted[s] - min(bs[a : s + 1])
        reserve = spent + (a + n - t) * (x - windows[a])
        best = min(best, max(reserve / (x - floor), 0.0))
    return best


def play(rng, n=7, K=60, pending=5, change=True):
    """Return (totals, thresholds) of an adversary who sees the weights, delays reports and loses some."""
    windows, b, spoken = Windows(n, np.array([B]), np.array([X])), B, {}
    counted, bs, waiting, known = [], [], [], {}
    for t in range(K):
        if change and rng.random() < 0.1:
            b = B + 0.04 * rng.uniform(-1, 1)
            windows.change(np.array([b]))
        bs.append(b)
        share = windows.share(np.array([LEAST]), "")
        assert share == pytest.approx(oracle(known, t, counted, bs, n, X, LEAST), abs=1e-9)
        floor = share * LEAST + (1 - share) * X
        windows.deploy(t, np.array([floor]), "")
        counted.append(floor)
        low = rng.random() < 0.7 or share > 0.5  # it strikes where it hurts
        spoken[t] = share * (LEAST if low else 1.0) + (1 - share) * (X if low else 1.0)
        waiting.append(t)
        while len(waiting) > pending * rng.random():
            k = waiting.pop(int(rng.integers(len(waiting))))
            if rng.random() < 0.1:
                windows.abandon(k)
            else:
                windows.settle(k, np.array([spoken[k]]))
                counted[k] = spoken[k]
    return np.array([spoken[t] for t in range(K)]), np.array(bs)


def least_surplus(totals, bs, n):
    """Return the least mean surplus of a window, whose limit is the least since it began."""
    found = [totals[a : a + n] - np.minimum.accumulate(bs[a : a + n]) for a in range(len(totals) - n + 1)]
    return min(one.mean() for one in found)


def test_no_adversary_brings_a_window_below_the_limit():
    worst = [least_surplus(*play(np.random.default_rng(seed)), 7) for seed in range(60)]
    assert min(worst) >= -1e-9
    assert max(worst) < 0.03  # the adversary is no friend: windows come close to the limit


def test_control_counting_pending_episodes_at_their_forecast_breaks_windows():
    windows = Windows(7, np.array([B]), np.array([X]))
    totals = []
    for t in range(30):
        share = windows.share(np.array([LEAST]), "")
        windows.deploy(t, np.array([X]), "")  # as if nothing could happen before the report
        totals.append(share * LEAST + (1 - share) * X)
    assert least_surplus(np.array(totals), np.full(30, B), 7) < -0.1


def test_months_end_at_the_limit_and_late_reports_count_where_they_belong():
    rng, days = np.random.default_rng(0), [datetime.date(2026, 1, 1) + datetime.timedelta(k) for k in range(120)]
    agent = agent_of(es.certify.Budget(7, X * 4, LEAST * 4, calendar="month"))
    windows, totals = agent.certifier.windows, []
    for t, day in enumerate(days):
        share = windows.share(np.array([LEAST * 4]), day.isoformat())
        floor = share * LEAST * 4 + (1 - share) * X * 4
        windows.deploy(t, np.array([floor]), day.isoformat())
        totals.append(floor if rng.random() < 0.6 else floor + share)
        if t >= 3:
            windows.settle(t - 3, np.array([totals[t - 3]]))
    for month in (1, 2, 3):
        assert np.mean([u for u, day in zip(totals, days, strict=True) if day.month == month]) >= 4 * B - 1e-9


def test_relative_sums_never_fall_below_their_share():
    rng, sums, total = np.random.default_rng(1), Relative(0.8, 4.0, 1), 0.0
    for t in range(300):
        w, own, incumbent = sums.weight(), 4 * rng.random() * (rng.random() < 0.5), 4 * rng.random()
        sums.deploy(t, w)
        u = w * own + (1 - w) * incumbent
        total += u - 0.8 * incumbent
        if rng.random() < 0.9:
            sums.settle(t, np.array([u]), np.array([incumbent]))
        assert total >= -1e-9


# a shop of four steps: action 1 earns more and keeps 1 or 0.2 as chance brings it, action 0 keeps 0.95 always


def shop(threshold=B * 4):
    shape = (1, 1, 2, 2)
    rewards = np.zeros(shape)
    rewards[0, 0, 1] = 1.0
    utilities = np.array([[X, X], [1.0, LEAST]]).reshape(*shape, 1)
    move = ListedMove((0, 1), np.zeros(shape, dtype=np.int64), rewards, utilities)
    law = np.array([[[0.8, 0.2]]])
    P, reward, utility = move.means(law)
    steps = [np.repeat(one, 4, axis=axis) for one, axis in ((P, 0), (reward, 0), (utility, 1))]
    return es.LinearCMDP(
        steps[0], steps[1], steps[2][0], threshold=threshold, safe_policy=np.tile([1.0, 0.0], (4, 1, 1)), slack=0.1,
        move=move, law=law, time_homogeneous=True,
    )  # fmt: skip


class Bold(Proposer):
    """Proposes the bold action once."""

    def propose(self, goal):
        return Candidate("", es.TablePolicy(np.tile([0.0, 1.0], (4, 1, 1))), 4.0, "bold")


def agent_of(certifier, problem=None):
    return es.SafeAgent(problem or shop(), certifier, proposer=Bold())


def drifting(k):
    """Return the trace of day k: good for a while, then bad."""
    rng = np.random.default_rng(k)
    return 0, tuple(int(w) for w in rng.random(4) < (0.05 if k < 40 or k > 80 else 0.7))


def episode_of(task, policy, trace, component=None):
    """Play a deterministic policy on a trace."""
    actions = [int(policy.probabilities(h, 0).argmax()) for h in range(4)]
    moved = [task.move(h, 0, a, w) for h, (a, w) in enumerate(zip(actions, trace[1], strict=True))]
    return es.Episode([0] * 5, actions, [r for _, r, _ in moved], [u for _, _, u in moved], component, trace)


def replayed(task, plan, trace):
    policies = plan.policy.components if isinstance(plan.policy, es.Mixture) else (plan.policy,)
    weights = plan.policy.weights if isinstance(plan.policy, es.Mixture) else [1.0]
    totals = [sum(u[0] for u in episode_of(task, policy, trace).utilities) for policy in policies]
    return float(np.dot(weights, totals))


def weight_of(plan):
    """Return the weight of everything but the incumbent."""
    if not isinstance(plan.policy, es.Mixture):
        return float(plan.source != "safe")
    return 1 - dict(zip(plan.policy.names, plan.policy.weights.tolist(), strict=True)).get("incumbent", 0.0)


@pytest.mark.parametrize(("form", "n"), [("replay", 14), ("sure", 24)])
@pytest.mark.parametrize("both", [False, True])
def test_a_session_keeps_every_window_while_days_drift(tmp_path, form, n, both):
    def make():
        budget = es.certify.Budget(n, X * 4, LEAST * 4, form)
        return agent_of(es.certify.Both(es.certify.Hindsight(0.5), budget) if both else budget)

    totals, weights, session = [], [], es.open(tmp_path, make(), false_alarm=0)
    for k in range(120):
        if k == 50:
            session = es.open(tmp_path, make(), false_alarm=0)  # another process continues from the log
        d, trace = session.deploy(), drifting(k)
        episode = episode_of(session.task, d.policy, trace, d.component)
        realised = sum(u[0] for u in episode.utilities)
        totals.append(replayed(session.task, d.plan, trace) if form == "replay" else realised)
        weights.append(weight_of(d.plan))
        session.report(d.id, episode)
    assert np.convolve(totals, np.ones(n) / n, "valid").min() >= 4 * B - 1e-9
    if not both:
        assert max(weights[:40]) > 0.9
        assert np.mean(weights[45:80]) < 0.2
    assert es.audit(tmp_path).passed
    assert es.audit(tmp_path, make()).passed
    begin = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])["body"]
    assert certifier_of(begin["agent"], session.task).settings() == session.state.certifier.settings()


def test_a_weight_that_no_window_pays_for_fails_the_audit(tmp_path):
    agent = agent_of(es.certify.Budget(14, X * 4, LEAST * 4))
    agent.certifier.windows.share = lambda floor, episode_id: 1.0  # a broken guard
    session = es.open(tmp_path, agent)
    for _ in range(3):
        d = session.deploy()
        session.report(d.id, episode_of(session.task, d.policy, (0, (1, 1, 1, 1)), d.component))
    found = es.audit(tmp_path)
    assert not found.passed
    assert "windows allow only" in str(found)


def test_runs_keep_windows_by_replays_and_changes_are_obeyed():
    problem = shop()
    record = es.run(problem, agent_of(es.certify.Budget(10, X * 4, LEAST * 4), problem), 60, seed=2)
    assert record.reward_values[-10:].mean() > 0.4
    session = es.open(None, agent_of(es.certify.Budget(10, X * 4, LEAST * 4)))
    session.deploy()
    with pytest.raises(es.Infeasible, match=r"reaches 3\.7"):
        session.change(threshold=3.81, reason="more")
    session.change(threshold=3.7, slack=0.05, reason="more")
    assert session.state.certifier.windows.limit == 3.7


def test_an_incumbent_below_the_limit_is_refused_and_the_relative_form_is_named():
    with pytest.raises(es.Infeasible, match='form="relative"'):
        agent_of(es.certify.Budget(28, incumbent_least=3.5))
    agent = agent_of(es.certify.Budget(form="relative", alpha=0.8))
    assert "0.8 times" in agent.settings()["statement"]
    d = agent.plan()
    assert dict(zip(d.policy.names, d.policy.weights, strict=True))["proposal-1"] == pytest.approx(0.2)


def test_a_total_below_the_least_is_reported():
    session = es.open(None, agent_of(es.certify.Budget(14, X * 4, 3.0)))
    d = session.deploy()
    session.report(d.id, episode_of(session.task, d.policy, (0, (1, 1, 1, 1)), d.component))
    assert any("below the least total" in one for one in session.status()["warnings"])
