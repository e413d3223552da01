"""The range of a total: how soon something may be tried, what is proved by it, and what an episode beyond it does."""

import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from conftest import constants
from episafe.certify.account import grid_of_means
from episafe.deployment.audit import audit
from episafe.kernels.wealth import BETS
from episafe.tools.environment_check import check

H, FALLS, LIMIT, SLACK = 40, 0.1, 0.25, 0.21
totals = es.Episode.of_totals


class Lava(gym.Env):
    """From the crossroads (0) around the lava in six safe steps, or across in two; a fall costs 1 and ends it."""

    observation_space, action_space = gym.spaces.Discrete(9), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = 0, 0
        return 0, {}

    def step(self, action):
        self.time += 1
        if self.state == 0:
            self.state = 1 if action == 0 else 8
            return self.state, 0.0, False, False, {"cost": 0.0}
        fell = self.state == 8 and self.np_random.random() < FALLS
        home = self.state >= 6
        self.state = 7 if home else self.state + 1
        reward = (1 - self.time / 10) * (home and not fell)
        return self.state, reward, home, False, {"cost": float(fell)}


def lava(**options):
    """The incumbent goes around nine times in ten: it falls once in a hundred episodes."""
    given = {"features": es.features.OneHot(), "horizon": H, "cost_limit": LIMIT, "slack": SLACK} | options
    return es.from_gymnasium(Lava(), safe_policy=lambda h, state: [0.9, 0.1], time_homogeneous=True, **given)


def certified(problem, **options):
    return es.OPSE(problem.task, constants(**options), certifier=es.certify.Observation(0.05))


def listed(least_total=0.0, threshold=1.2, **options):
    """Two steps that give 0.5 or 1: every episode has 1 at least."""
    P = np.full((2, 2, 2, 2), 0.5)
    utility = np.array([[[1.0, 0.5], [1.0, 0.5]]] * 2)
    return es.LinearCMDP(P, 1 - utility / 2, utility, threshold=threshold, least_total=least_total, **options)


def rollout(least_total, shift=0.0, **options):
    return es.Rollout(9.5 + shift, 0.3, {"v2": "b"}, "a", least_total=least_total + shift, **options)


# ---- a larger first coin, from the same limit


def test_a_rare_failure_is_tried_in_a_fifth_of_the_first_episodes_and_learned():
    found = {}
    for name, options in {"by steps": {}, "by episodes": {"episode_cost_max": 1.0}}.items():
        problem = lava(**options)
        agent = certified(problem)
        first = agent.plan().policy
        record = es.run(problem, agent, 600, seed=1)
        found[name] = float(first.weights[0]), record.reward_totals[-100:].mean()
    assert 0.003 < found["by steps"][0] < 0.007 and 0.2 < found["by episodes"][0] < 0.25
    around, across = 0.9 * 0.3 + 0.1 * 0.9 * 0.8, (1 - FALLS) * 0.8
    assert found["by steps"][1] < around + 0.06  # nothing yet
    assert found["by episodes"][1] > (around + across) / 2


def test_the_limit_is_the_same_in_the_units_of_the_signal():
    cents = {"cost_limit": 250.0, "slack": 210.0, "cost_range": (0.0, 1000.0)}
    told, scaled = lava(episode_cost_max=1.0), lava(episode_cost_max=1000.0, **cents)
    for problem in (told, scaled):
        assert problem.task.least_total == pytest.approx(H - 1)
        assert problem.task.threshold == pytest.approx(H - LIMIT)
    assert scaled.origin["worst_total"] == 1000.0
    assert lava().task.least_total == 0 and lava(episode_cost_max=2.0 * H).task.least_total == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"episode_cost_max": 0.25}, "no episode can break the limit 0.25"),
        ({"least_total": 3.0}, "the limit is on the cost: give episode_cost_max"),
        ({"episode_cost_max": np.nan}, "episode_cost_max must be finite"),
    ],
)
def test_a_worst_total_that_makes_no_sense_is_refused(options, says):
    with pytest.raises(es.InvalidProblem, match=says):
        lava(**options)


def test_no_worst_total_is_advised_below_what_one_step_may_cost():
    """An incumbent that cost nothing so far: a step may cost 1 all the same."""
    said = str(es.forecast(lava(horizon=5).task, totals=[5.0, 4.999] * 20))
    assert float(re.findall(r"episode_cost_max=([\d.]+),", said)[0]) == 1
    assert "episode_cost_max" not in str(es.forecast(lava(horizon=1).task, totals=[1.0, 0.999] * 20))


def test_check_says_what_it_would_help():
    advised = next(one for one in check(lava(), 200) if one.what == "trials")
    assert (
        advised.verdict == "warning"
        and "episode_cost_max=1, a number of these episodes and no advice, it would be 21.9%" in advised.found
    )
    said = next(one for one in check(lava(), 200) if one.what == "forecast").found
    assert "least_total" not in said and "episode_cost_max" not in said
    assert "episode_cost_max=" in str(es.forecast(lava())) and "least_total" not in str(es.forecast(lava()))
    stated = next(one for one in check(lava(episode_cost_max=1.0), 20) if one.what == "trials")
    assert stated.verdict == "ok" and "21.9%" in stated.found and "episode_cost_max" not in stated.found


def test_slack_is_proved_sooner():
    by_steps, by_episodes = (
        es.measure_slack(lava(slack=None, **options)) for options in ({}, {"episode_cost_max": 1.0})
    )
    assert by_episodes.num_episodes < by_steps.num_episodes / 2
    assert 0.1 < by_episodes.lower <= by_episodes.mean <= LIMIT


def test_no_slack_is_proved_from_a_false_range():
    """Here each fall costs 2."""

    class Deeper(Lava):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {"cost": info["cost"] * 2}

    problem = es.from_gymnasium(
        Deeper(), features=es.features.OneHot(), horizon=H, cost_limit=0.5, slack=None, cost_range=(0.0, 2.0),
        safe_policy=lambda h, state: [0.5, 0.5], episode_cost_max=1.0,
    )  # fmt: skip
    with pytest.raises(es.Infeasible, match="below the least_total"):
        es.measure_slack(problem)


# ---- what is proved


def test_bounds_are_those_of_what_is_above_the_least():
    """L(X) = x₀ + L(X − x₀): the wealth of X − x₀ against means above x₀, at every prefix."""
    agent, rng, seen = rollout(9.0), np.random.default_rng(0), []
    for _ in range(300):
        plan = agent.plan()
        component, _ = plan.policy.draw(rng)
        total = 9.0 + rng.beta(9, 1)
        seen += [total] if component == 0 else []
        agent.learn(totals(total, component=component), plan_id=plan.id)
    means = grid_of_means(9.5, 9.8, 9.0 + 4 * 0.8, 9.0)
    gains = (np.array(seen)[:, None, None] - 9.0) / (means[:, None] - 9.0) - 1
    wealth = np.exp(np.log1p(BETS * gains).cumsum(axis=0).clip(max=600)).mean(axis=2)
    assert agent.bounds()["v2"] == means[(wealth >= 2 / 0.05).any(axis=0)].max() > 9.5


@pytest.mark.parametrize("shift", [-9.5, 90.0])
def test_where_zero_is_does_not_matter(shift):
    """The same evidence proves the same above any least total, a negative one too."""
    agents, rng = (rollout(9.0), rollout(9.0, shift)), np.random.default_rng(0)
    for _ in range(150):
        plans = [agent.plan() for agent in agents]
        np.testing.assert_allclose(*(plan.policy.weights for plan in plans), rtol=1e-6)
        component, _ = plans[0].policy.draw(rng)
        for agent, plan, moved in zip(agents, plans, (0.0, shift), strict=True):
            agent.learn(totals(9.9 + moved, component=component), plan_id=plan.id)
    assert agents[1].bounds()["v2"] - shift == pytest.approx(agents[0].bounds()["v2"])
    assert agents[0].bounds()["v2"] > 9.5


def test_a_least_total_of_nothing_changes_no_bit():
    for known in (14.0, None):
        np.testing.assert_array_equal(grid_of_means(12.6, known, 14.0), grid_of_means(12.6, known, 14.0, 0.0))
    assert listed().task.numbers([]) and "least_total" not in listed().task.as_arrays()
    assert "least_total" not in certified(listed()).settings()


def test_the_compiled_loop_and_the_plain_one_agree():
    """And a task that states more than the problem knows runs in the plain one, which voids."""
    cmdp = listed(1.0)
    fast, slow = (es.run(cmdp, certified(cmdp), 300, seed=3, monitors=watched) for watched in _twice(cmdp))
    np.testing.assert_array_equal(fast.utility_bounds, slow.utility_bounds)
    assert (fast.utility_bounds[fast.sources == "search"] >= cmdp.task.threshold).all()
    false = replace(cmdp.task, constraint=replace(cmdp.task.constraint, least_total=1.1))
    agent = es.OPSE(false, constants(), certifier=es.certify.Observation())
    with pytest.warns(RuntimeWarning, match=r"range: an episode had a total utility of 1, below the least of 1.1"):
        record = es.run(cmdp, agent, 200, seed=0)
    assert agent.void and (record.sources[-50:] == "safe").all()


def _twice(cmdp):
    return None, es.Monitors(cmdp.task)  # monitors are watched by the plain loop alone


# ---- what is stated must be true


def test_a_kernel_that_knows_better_refuses_a_false_one():
    assert listed(1.0).task.least_total == 1.0
    with pytest.raises(es.Infeasible, match="an episode may have 1: give that"):
        listed(1.1)
    with pytest.raises(es.InvalidProblem, match="not below the threshold"):
        listed(1.3)


def test_it_is_kept_with_the_problem_and_the_agent(tmp_path):
    cmdp = listed(1.0)
    cmdp.save(tmp_path / "cmdp.npz")
    loaded = es.LinearCMDP.load(tmp_path / "cmdp.npz")
    assert loaded.task.least_total == es.Task.from_arrays(cmdp.task.as_arrays()).least_total == 1.0
    ours, others = certified(cmdp), certified(listed(0.5))
    assert ours.fingerprint() == certified(loaded).fingerprint() != others.fingerprint()
    assert ours.settings()["least_total"] == 1.0
    assert "at least 1, and the first that has less halts" in ours.settings()["statement"]
    assert "least_total=1" in repr(cmdp.task)
    assert rollout(9.0).fingerprint() != rollout(8.0).fingerprint()
    assert "at least 9," in rollout(9.0).settings()["statement"]


# ---- an episode beyond it


def breach(agent, good, bad, num=80):
    """Many good episodes, and one that has less than any may have; the bounds before and after."""
    rng = np.random.default_rng(0)
    for _ in range(num):
        plan = agent.plan()
        agent.learn(good(plan.policy.draw(rng)[0] if len(plan.policy.components) > 1 else None), plan_id=plan.id)
    before, plan = agent.bounds(), agent.plan()
    agent.learn(bad(0 if len(plan.policy.components) > 1 else None), plan_id=plan.id)
    return before, agent.bounds()


def bare(kind):
    if kind == "rollout":
        return rollout(9.0), lambda i: totals(9.9, component=i), lambda i: totals(8.99, component=i)
    task = listed(1.0).task
    agent = es.OPSE(task, constants(), certifier=es.certify.Observation())
    told = {"states": [0, 0, 0], "actions": [0, 0]}

    def good(i):
        return es.Episode(**told, utilities=[1.0, 1.0], component=i)

    return agent, good, lambda i: es.Episode(**told, utilities=[0.5, 0.4], component=i)


@pytest.mark.parametrize("kind", ["rollout", "observation"])
def test_a_breach_voids_for_ever_and_is_never_clipped(kind):
    agent, good, bad = bare(kind)
    before, after = breach(agent, good, bad)
    assert len(before) > 1 and list(after) == ["incumbent"] and after["incumbent"] == before["incumbent"]
    again = bare(kind)[0]
    again.restore(agent.state())
    for one in (agent, again):
        assert "below the least of" in one.void and "nothing is certified any more" in one.void
        for _ in range(100):
            plan = one.plan()
            assert plan.source == "safe" and plan.reason == one.void
            one.learn(good(None), plan_id=plan.id)
        assert list(one.bounds()) == ["incumbent"]


def test_an_incumbent_with_a_sequence_of_its_own_loses_its_bound_too():
    agent = es.Rollout(9.5, None, {"v2": "b"}, "a", least_total=9.0)
    for _ in range(60):
        agent.learn(totals(9.9), plan_id=agent.plan().id)
        if len(agent.plan().policy.components) > 1:
            break
    proved = agent.bounds()["incumbent"]
    agent.learn(totals(8.0, component=0), plan_id=agent.plan().id)
    for _ in range(60):
        agent.learn(totals(9.9), plan_id=agent.plan().id)
    assert proved > 9.5 and agent.bounds() == {"incumbent": 9.0}


@pytest.mark.parametrize("false_alarm", [0.0, 0.01])
def test_a_session_halts_keeps_it_and_an_audit_reads_it(tmp_path, false_alarm):
    def made():
        return rollout(9.0, utility_max=10.0)

    rng, options = np.random.default_rng(0), {"false_alarm": false_alarm}
    with es.open(tmp_path / "kept", agent=made(), **options) as session:
        for total in [9.9] * 30 + [8.0]:
            session.learn(totals(total), deployment=session.deploy(rng).id)
        assert "halted" in session.stopped
    agent = made()
    with es.open(tmp_path / "kept", agent=agent, **options) as session:
        assert "halted" in session.stopped and agent.void
        session.resume_exploring("the operator says that it was a test")
        deployed = session.deploy(rng)
        assert deployed.plan.source == "safe" and deployed.plan.reason == agent.void
        session.learn(totals(9.9), deployment=deployed.id)
        assert not session.stopped  # it halts once; the certificate stays void
    found = audit(tmp_path / "kept", made())
    assert found.is_whole and found.recomputed


def test_a_late_report_and_one_of_nobody_on_trial_void_as_well():
    agent, rng = rollout(9.0), np.random.default_rng(0)
    session = es.open(None, agent=agent)
    made = [session.deploy(rng) for _ in range(20)]
    for deployed in made[1:]:
        session.learn(totals(9.9), deployment=deployed.id)
    assert not session.stopped
    session.learn(totals(8.9), deployment=made[0].id)
    assert "halted" in session.stopped and agent.void


@pytest.mark.parametrize("least", [-1.0, 0.2])
def test_what_is_not_reported_counts_as_the_least_total(least):
    """Failures, which have the least total, are never reported; counted as 0, every run deployed the candidate."""
    succeeds, threshold = {"now": 0.95, "v2": 0.6}, least + 0.65 * (1 - least)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        given = {"candidates": {"v2": "v2"}, "incumbent": "now", "utility_max": 1.0, "least_total": least}
        agent = es.Rollout(threshold, 0.3 * (1 - least), **given)
        session = es.open(None, agent=agent, false_alarm=0)
        for _ in range(300):
            deployed = session.deploy(rng)
            if rng.random() < succeeds[deployed.policy.policy]:
                session.learn(totals(1.0), deployment=deployed.id)
        assert agent.bounds()["v2"] < threshold
        assert session.deploy(rng).plan.policy.names == ("v2", "incumbent")


def test_what_is_late_costs_what_it_costs_where_the_least_total_is_zero():
    """The bound is the same function of X − x₀, whatever x₀: with a positive one nothing was proved past a gap."""
    proved = []
    for least in (0.0, 0.2, -1.0):
        given = {"candidates": {"v2": "v2"}, "incumbent": "now", "utility_max": 1.0 + least, "least_total": least}
        agent, rng = es.Rollout(least + 0.5, 0.3, **given), np.random.default_rng(0)
        session = es.open(None, agent=agent, false_alarm=0)
        made = [session.deploy(rng) for _ in range(200)]
        for deployed in made:
            if deployed.id % 40:
                session.learn(totals(least + 0.9), deployment=deployed.id)
        proved.append(agent.bounds()["v2"] - least)
    assert proved[0] > 0.2 and proved == pytest.approx([proved[0]] * 3)


def test_what_is_rounding_is_so_for_the_range_of_the_totals():
    """A mean of 0.4 units where 0.5 are promised: losses of a whole unit are no rounding, however small the unit."""
    unit = 1e-9
    session = es.open(None, es.Rollout(0.5 * unit, 0.4 * unit, {"v2": "v2"}, "v1"))
    rng = np.random.default_rng(0)
    while not session.stopped and session.book.started < 300:
        made = session.deploy(rng)
        total = 0.9 * unit if made.policy.name == "incumbent" else unit if rng.random() < 0.7 else -unit
        session.learn(es.Episode.of_totals(total), deployment=made.id)
    assert session.agent.void and session.agent.bounds() == {"incumbent": 0.9 * unit}
    fine = es.open(None, es.Rollout(0.5, 0.4, {"v2": "v2"}, "v1"))
    fine.learn(es.Episode.of_totals(-1e-12), deployment=fine.deploy(rng).id)
    assert not fine.agent.void


class Acts:
    """Always the same, whatever the state."""

    def __init__(self, action):
        self.row = np.eye(2)[action]

    def probabilities(self, h, state):
        return self.row


def exogenous():
    """Action 1 gives nothing, where every episode is said to have 1 at least."""
    return es.SampledCMDP(
        features=lambda state: np.eye(2), reward=None, utility=None, sample=None, horizon=2, num_actions=2,
        initial_state=0, threshold=1.5, slack=0.4, least_total=1.0, safe_policy=lambda h, state: np.eye(2)[0],
        move=lambda h, state, action, w: (0, 0.1, 0.95 * (action == 0)), chance=lambda h, past, rng: 0,
    )  # fmt: skip


def test_what_a_replay_has_voided_is_not_explored_by_what_was_observed():
    """A replay shows less than the least total where nobody went: what was observed rests on it as well."""
    task, rng = exogenous().task, np.random.default_rng(0)
    session = es.open(None, es.OPSE(task, certifier=es.certify.Hindsight(0.05)))
    session.add_candidate("nothing", Acts(1))
    while not session.stopped:
        deployed = session.deploy(rng)
        if deployed.policy.name == "incumbent":
            session.learn(task.replay(deployed.policy, (None, (0, 0)), rng), deployment=deployed.id)
    session.resume_exploring("a person")
    assert "would have had a total utility of 0" in session.agent.void
    assert {session.deploy(rng).plan.source for _ in range(5)} == {"safe"}


@pytest.mark.parametrize("kind", ["rollout", "observation"])
@pytest.mark.parametrize("monitored", [0.0, 0.01])
def test_what_is_reported_while_a_person_has_halted_voids_as_well(kind, monitored):
    agent, good, bad = bare(kind)
    session, rng = es.open(None, agent=agent, false_alarm=monitored), np.random.default_rng(0)
    session.learn(good(None), deployment=session.deploy(rng).id)
    session.halt("a person looks")
    session.learn(good(None), deployment=session.deploy(rng).id)
    assert not agent.void
    session.learn(bad(None), deployment=session.deploy(rng).id)
    assert "below the least of" in agent.void
    session.resume_exploring("all is well")
    assert session.deploy(rng).plan.source == "safe"
