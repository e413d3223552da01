"""Rollouts under several constraints: a sequence each, weights by the linear program, and how it is kept."""

import numpy as np
import pytest

import episafe as es
from episafe.testing.assertions import require_same_arrays
from test_rollout import alone, in_memory, oracle, totals

B, SLACK = np.array([0.5, 0.6]), np.array([0.4, 0.2])
NAMES = ("speed", "safety")
MEANS = {"incumbent": (0.9, 0.8), "good": (0.8, 0.75), "slow": (0.3, 0.9), "unsafe": (0.9, 0.5)}


def rollout(*names, slack=SLACK, delta=0.05, **others):
    candidates = {name: [name] for name in names}
    return es.Rollout(B, slack, candidates, ["now"], delta, 1.0, names=NAMES, **others)


def both(name, rng):
    return np.array([rng.beta(10 * mean, 10 * (1 - mean)) for mean in MEANS[name]])


def test_the_first_weight_is_what_the_tightest_constraint_pays_for():
    plan = rollout("v2").plan()
    assert plan.policy.weights[0] == pytest.approx((SLACK / (B + SLACK)).min(), abs=1e-9)
    assert plan.utility_bound.shape == (2,) and (plan.utility_bound >= B).all() and plan.level == "theorem"
    said = rollout().settings()
    assert "of each constraint" in said["statement"] and said["slack of safety"] == 0.2


def test_a_bound_is_the_exact_wealth_of_each_constraint_at_its_part_of_delta():
    agent, rng, seen = rollout("good", "slow", delta=0.2), np.random.default_rng(0), {"good": [], "slow": []}
    session = in_memory(agent)
    for _ in range(200):
        deployed = session.deploy(rng)
        utilities = both(deployed.policy.name, rng) * 0.6
        seen.setdefault(deployed.policy.name, []).append(utilities)
        session.learn(totals(utilities), deployment=deployed.id)
    for share, name in ((5 / 12, "good"), (3 / 12, "slow")):
        for c, ledger in enumerate(agent.certificate.ledger.each):
            utilities = np.array(seen[name])[:, c]
            assert agent.bounds()[name][c] == oracle(utilities, ledger.trials.means, 0.1 * share) > 0
    np.testing.assert_allclose(agent.bounds()["incumbent"], B + SLACK)


def test_only_who_keeps_both_acts_alone():
    for seed in range(4):
        assert alone(rollout("slow", "unsafe", "good"), np.random.default_rng(seed), both)[0] == "good"


def test_no_deployed_mixture_is_below_a_threshold():
    """A candidate just below one of two thresholds, and far above the other."""
    below, means = 0, {"incumbent": B + SLACK, "v2": np.array([0.9, 0.58])}
    for seed in range(25):
        session, rng = in_memory(rollout("v2")), np.random.default_rng(seed)
        for _ in range(120):
            deployed = session.deploy(rng)
            mixture = deployed.plan.policy
            mixed = sum(w * means[name] for w, name in zip(mixture.weights, mixture.names, strict=True))
            below += bool((mixed < B - 1e-9).any())
            utilities = (rng.random(2) < means[deployed.policy.name]).astype(float)
            session.learn(totals(utilities), deployment=deployed.id)
    assert below <= 2


def test_where_one_slack_is_not_known_the_incumbent_is_proved_there_first():
    agent, rng = rollout("good", slack=[0.4, None]), np.random.default_rng(0)
    session = in_memory(agent)
    first = session.deploy(rng)
    assert first.plan.source == "safe" and "not proved" in first.plan.reason
    assert agent.bounds()["incumbent"].tolist() == [0.9, 0.0]
    for _ in range(400):
        deployed = session.deploy(rng)
        session.learn(totals(both(deployed.policy.name, rng)), deployment=deployed.id)
    assert agent.bounds()["incumbent"][1] > 0.6 and agent.certificate.seen[1, 0, 0] > 10


def lived(folder, num_parts):
    rng, waiting = np.random.default_rng(7), []
    for _ in range(num_parts):
        with es.open(folder, agent=rollout("good", "unsafe")) as session:
            for k in range(30):
                waiting.append(session.deploy(rng))
                if k % 9 == 0:
                    session.abandon(waiting.pop(0).id)
                while len(waiting) > 4:
                    late = waiting.pop(int(rng.integers(3)))
                    outcome = both(late.policy.name, np.random.default_rng(late.id))
                    session.learn(totals(outcome), deployment=late.id)
            bounds, state = session.agent.bounds(), session.agent.state()
    return bounds, state


def test_it_goes_on_as_if_it_had_never_been_closed_and_is_audited(tmp_path):
    bounds, state = lived(tmp_path, 2)
    again = rollout("unsafe", "good")
    with es.open(tmp_path, agent=again):
        require_same_arrays(state, again.state(), "the states differ")
    assert all((again.bounds()[name] == bounds[name]).all() for name in bounds)
    audit = es.audit(tmp_path, agent=rollout("good", "unsafe"))
    assert audit.is_whole and audit.recomputed > 30


def test_what_it_was_built_with_builds_it_again():
    agent = rollout("v2", least_total=[0.0, 0.1])
    again = es.Rollout(**agent.arguments())
    assert again.fingerprint() == agent.fingerprint() and again.task.constraint_names == NAMES


def test_a_certified_one_is_promoted_and_the_thresholds_may_change():
    agent, rng = rollout("good"), np.random.default_rng(1)
    session = in_memory(agent)
    for _ in range(600):
        deployed = session.deploy(rng)
        session.learn(totals(both(deployed.policy.name, rng)), deployment=deployed.id)
    assert agent.plan().policy.names == ("good",)
    session.promote("good", reason="proved")
    session.change(reason="stricter", threshold=[0.78, 0.6])
    assert agent.promoted == "incumbent" and agent.plan().policy.names == ("good", "incumbent")


def test_one_of_several_thresholds_changes_by_its_name():
    session = in_memory(rollout("v2"))
    before, raised = session.task.limits.tolist(), session.task.limits[1] + 0.01
    session.change("the second alone", threshold={NAMES[1]: raised})
    assert session.task.limits.tolist() == [before[0], raised]
    for wrong in (raised, [raised], {"something": raised}):
        with pytest.raises(
            ValueError, match=rf"give 2 numbers, one a constraint \({', '.join(NAMES)}\), or by their names"
        ):
            session.change("wrong", threshold=wrong)


@pytest.mark.parametrize("total", [0.5, [0.5], [0.5, 0.5, 0.5], [0.5, np.nan]])
def test_a_report_needs_one_total_a_constraint(total):
    session, rng = in_memory(rollout("v2")), np.random.default_rng(0)
    deployed = session.deploy(rng)
    with pytest.raises(es.InvalidEpisode, match="2 finite numbers, one a constraint"):
        session.learn(totals(total), deployment=deployed.id)


@pytest.mark.parametrize("m", [1, 2])
def test_an_incumbent_that_falls_is_seen_whatever_the_number_of_limits(m):
    """A set a constraint did not know the incumbent, which was made anew for it: 6 of 6 falls went unseen."""
    limits = (0.5, 0.4) if m == 1 else ([0.5, 0.5], [0.4, 0.4])
    session, rng = es.open(None, es.Rollout(*limits, {}, "v1", utility_max=1.0)), np.random.default_rng(2)
    for _ in range(300):
        total = float(rng.random() < 0.55)
        session.learn(totals(total if m == 1 else [total, 0.95]), deployment=session.deploy(rng).id)
    assert {alarm.what for alarm in session.monitors.alarms} >= {"incumbent"}
    status = session.status().monitors
    for one in [status] if m == 1 else [status[name] for name in session.task.constraint_names]:
        assert one["incumbent"]["episodes"] == one["drift"]["episodes"] == 300
