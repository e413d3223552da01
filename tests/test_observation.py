"""SafeAgent with Observation: what is deployed, late reports, promotion, and the compiled loop."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import episafe as es
from episafe.certify.observation import Observation
from episafe.simulation import run as simulation

START, GOOD, BAD = range(3)


def two_steps(risky=0.3, careful=0.9, threshold=0.5, **options):
    """Return a problem in which action 1 pays, and leads to the good state with probability `risky`."""
    P = np.zeros((2, 3, 2, 3))
    P[0, :, 0, GOOD], P[0, :, 0, BAD] = careful, 1 - careful
    P[0, :, 1, GOOD], P[0, :, 1, BAD] = risky, 1 - risky
    P[1, ..., BAD] = 1
    reward, utility = np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    reward[0, :, 1], utility[1, GOOD] = 1, 1
    incumbent = np.zeros((2, 3, 2))
    incumbent[..., 0] = 1
    return es.LinearCMDP(P, reward, utility, threshold=threshold, safe_policy=incumbent, **options)


def observing(cmdp, delta=0.05, certifier=Observation, **options):
    return es.SafeAgent(cmdp, certifier(delta), **options)


def episode(cmdp, plan, rng):
    """Play a plan; return what happened."""
    component, policy = plan.policy.draw(rng) if isinstance(plan.policy, es.Mixture) else (None, plan.policy)
    states, actions = [cmdp.task.initial_state], []
    for h in range(cmdp.task.horizon):
        actions.append(policy.act(h, states[-1], rng))
        states.append(int(rng.choice(cmdp.P.shape[1], p=cmdp.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions, component=component)


def play(cmdp, agent, num_episodes, rng, arrival=lambda k, good, rng: (k,)):
    """Deploy, and report each episode at the times `arrival` gives; return the least utility that was deployed."""
    due, least = {}, math.inf
    for k in range(num_episodes):
        plan = agent.plan()
        least = min(least, cmdp.evaluate(plan.policy)[1])
        seen = episode(cmdp, plan, rng)
        for when in arrival(k, seen.states[1] == GOOD, rng):
            due.setdefault(when, []).append((plan.id, seen))
        for plan_id, one in due.pop(k, []):
            try:
                agent.learn(one, plan_id)
            except es.InvalidEpisode as refused:
                assert "reported before" in str(refused)
    return least


def both_loops(make, num_episodes, on_progress=lambda agent, done: None, **options):
    """Return (record, agent) of the compiled and of the plain loop, each with a new problem."""
    found = []
    for plain in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if plain:
                patch.setattr(simulation, "compiled_loops", dict)
            cmdp = make()
            agent = observing(cmdp, **options)
            patch.setattr(simulation, "TELL_EVERY", 0.0)
            record = es.run(cmdp, agent, num_episodes, 3, lambda done, agent=agent: on_progress(agent, done))
            found.append((record, agent))
    return found


# what is deployed


def test_slack_pays_for_the_first_trial():
    """Nothing is known of the candidate but that utilities are not negative: p·0 + (1 − p)(b + ξ) = b."""
    task = es.make("tabular", seed=0).task
    plan = observing(task).plan()
    p = task.slacks[0] / task.stated_utilities[0]
    np.testing.assert_allclose(plan.policy.weights, [p, 1 - p], rtol=1e-9)
    assert plan.policy.components[1] is task.incumbent and plan.policy.names == ("proposal-1", "incumbent")
    assert plan.bounds.shape == (1,) and plan.bounds[0] >= task.thresholds[0] and plan.level == "theorem"


@pytest.mark.parametrize(("name", "options"), [("streaming", {}), ("linear", {}), ("tabular", {"num_constraints": 2})])
def test_runs_improve_and_every_bound_holds(name, options):
    cmdp = es.make(name, seed=101, **options)
    record = es.run(cmdp, observing(cmdp), 4000, seed=1)
    proved = record.sources != "safe"
    assert not record.violating().any() and (record.bounds[proved] >= record.threshold).all()
    assert (record.bounds[proved] <= record.utility_values[proved] + 1e-9).all()
    gain = cmdp.optimal_value() - cmdp.evaluate(cmdp.task.incumbent)[0]
    assert record.regret()[-1] < 0.8 * 4000 * gain and record.weights.shape[1] <= 1 + cmdp.task.num_constraints


@pytest.mark.parametrize(
    ("name", "options"),
    [("tabular", {}), ("linear", {}), ("ring", {}), ("tabular", {"num_constraints": 2}), ("inventory", {})],
)
def test_compiled_loop_gives_the_record_of_the_plain_one(name, options):
    (one, agent), (other, plain) = both_loops(lambda: es.make(name, seed=1, **options), 700)
    assert one.columns().keys() == other.columns().keys() and one.acting_names == other.acting_names
    for column, values in one.columns().items():
        np.testing.assert_array_equal(values, other.columns()[column], err_msg=column)
    for ours, theirs in zip(agent.certifier.accounts.wealth, plain.certifier.accounts.wealth, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert agent.plan().id == plain.plan().id == 700


def test_compiled_loop_knows_candidates_of_users_and_declines_what_it_does_not_know():
    rng = np.random.default_rng(0)
    tables = {name: rng.dirichlet(np.ones(2), (2, 3)) for name in ("v2", "v3")}
    (one, agent), (other, _) = both_loops(lambda: two_steps(0.6), 600, candidates=tables)
    np.testing.assert_array_equal(one.acting_numbers, other.acting_numbers)
    np.testing.assert_array_equal(one.bounds, other.bounds)
    assert {"v2", "v3"} <= agent.bounds().keys() and one.acting_names == other.acting_names
    (one, _), (other, _) = both_loops(lambda: two_steps(0.6), 300, certifier=type("Own", (Observation,), {}))
    np.testing.assert_array_equal(one.bounds, other.bounds)


def test_limit_that_changes_during_a_run_holds_from_then_on():
    """At a sample of the run, where both loops stop: the thresholds of the compiled one are not old ones."""

    def stricter(agent, done):
        if done == 202:
            agent.change(threshold=0.8)

    (one, _), (other, _) = both_loops(lambda: two_steps(0.6), 400, stricter)
    np.testing.assert_array_equal(one.bounds, other.bounds)
    assert (one.utility_values[:202] < 0.8).any() and (one.utility_values[202:] >= 0.8 - 1e-9).all()


# late, lost and repeated reports, as they depend on outcomes


def faulty(k, good, rng):
    """Return when an episode is reported: failures late, often never; successes at once and twice."""
    if good:
        return (k, k + int(rng.integers(1, 9)))
    return () if rng.random() < 0.5 else (k + int(rng.integers(10, 60)),)


class PendingIgnored(Observation):
    """A control: a deployment counts when it is reported, and never before."""

    def deployed(self, deployment, plan, component=None):
        self._plans[deployment] = plan

    def apply(self, deployment, evidence):
        rows = [row for row in map(self.accounts.row, evidence.names) if row >= 0]
        self.accounts.expect(deployment, rows)
        super().apply(deployment, evidence)


class RepeatsBelieved(Observation):
    """A control: every report counts as one of another deployment."""

    def apply(self, deployment, evidence):
        plan = self._plans[deployment]
        super().apply(deployment, evidence)
        self._again = getattr(self, "_again", 10**6) + 1
        self.deployed(self._again, plan)
        super().apply(self._again, evidence)
        self._plans[deployment] = plan


def violating_runs(num_runs, certifier=Observation, delta=0.3):
    """Count runs in which a mixture below the limit was deployed, of 150 deployments each."""
    cmdp, found = two_steps(), 0
    for seed in range(num_runs):
        rng = np.random.default_rng(seed)
        found += play(cmdp, observing(cmdp, delta, certifier), 150, rng, faulty) < cmdp.task.thresholds[0] - 1e-9
    return found


@pytest.mark.parametrize("num_runs", [25, pytest.param(600, marks=pytest.mark.slow)])
def test_reports_that_depend_on_outcomes_do_not_break_the_promise(num_runs):
    assert violating_runs(num_runs) <= binom.ppf(0.999, num_runs, 0.3)


@pytest.mark.parametrize("control", [PendingIgnored, RepeatsBelieved])
def test_controls_break_the_promise(control):
    assert violating_runs(12, control) > binom.ppf(0.999, 12, 0.3)


def test_a_deployment_is_reported_once_and_stays_at_its_worst_when_abandoned():
    cmdp, rng = two_steps(0.7), np.random.default_rng(0)
    agent = observing(cmdp)
    plans = [agent.plan() for _ in range(3)]
    assert [plan.id for plan in plans] == [0, 1, 2]
    seen = episode(cmdp, plans[1], rng)
    agent.learn(seen, 1)
    for plan_id in (1, 7):
        with pytest.raises(es.InvalidEpisode, match="unknown or was reported before"):
            agent.learn(seen, plan_id)
    agent.certifier.abandoned(0)
    with pytest.raises(es.InvalidEpisode, match="unknown"):
        agent.learn(seen, 0)
    agent.learn(es.Episode(seen.states, seen.actions))  # an episode of a log teaches the proposer and proves nothing
    assert agent.certifier.num_episodes == 1 and agent.proposer.model.num_episodes == 2
    assert any(agent.certifier.accounts.tails)


# promotion, withdrawal, other limits, contradictions


def certified_agent(delta=0.05):
    """Return a problem, and an agent whose candidate "v2" is certified."""
    cmdp = two_steps(0.8, threshold=0.5)
    risky = np.zeros((2, 3, 2))
    risky[..., 1] = 1
    agent, rng = observing(cmdp, delta, candidates={"v2": risky}), np.random.default_rng(1)
    while agent.bounds()["v2"][0] < 0.6:
        plan = agent.plan()
        agent.learn(episode(cmdp, plan, rng), plan.id)
    return cmdp, agent


def test_promotion_replaces_the_incumbent_while_the_bound_reaches_the_limit():
    _, agent = certified_agent()
    bound = agent.bounds()["v2"][0]
    agent.promote("v2")
    plan = agent.plan()
    names = plan.policy.names if isinstance(plan.policy, es.Mixture) else (plan.policy.name,)
    assert "incumbent" not in names and plan.bounds[0] >= 0.5
    agent.change(threshold=0.85)  # beyond what is proved of v2; the incumbent has 0.9
    assert agent.bounds()["v2"][0] == bound
    plan = agent.plan()
    names = plan.policy.names if isinstance(plan.policy, es.Mixture) else ("incumbent",)
    assert "incumbent" in names and (plan.source == "safe" or plan.bounds[0] >= 0.85)
    with pytest.raises(ValueError, match="below the limits"):
        agent.promote("v2")
    with pytest.raises(ValueError, match="no policy 'v9'"):
        agent.promote("v9")


def test_withdrawal_ends_a_trial_and_its_delta_stays_spent():
    _, agent = certified_agent()
    spent = agent.certifier.accounts.num_candidates
    agent.withdraw("v2")
    assert "v2" not in agent.bounds()
    agent.add_candidate("v2", np.full((2, 3, 2), 0.5))
    agent.plan()
    accounts = agent.certifier.accounts
    row = accounts.row("v2")
    assert accounts.wealth.log_term[row, 0] >= accounts.log_term(spent + 1) and agent.bounds()["v2"][0] == 0
    for name in ("v9", "incumbent"):
        with pytest.raises(ValueError, match=f"no policy '{name}' is on trial"):
            agent.withdraw(name)


def test_limits_change_and_bounds_stay():
    cmdp, agent = certified_agent()
    before = agent.bounds()
    agent.change(threshold=0.3)
    assert agent.task.slacks[0] == pytest.approx(0.6) and agent.plan().bounds[0] >= 0.3
    for name, bound in before.items():
        np.testing.assert_allclose(agent.bounds()[name], bound, rtol=1e-15)
    with pytest.raises(es.Infeasible, match="incumbent reaches"):
        agent.change(threshold=0.95)
    assert cmdp.task.thresholds[0] == 0.5


def test_total_below_the_stated_least_total_voids_everything():
    cmdp = two_steps(0.6)
    told = replace(cmdp.task, constraints=(replace(cmdp.task.constraints[0], least_total=0.4),))
    agent = observing(told)
    record = es.run(cmdp, agent, 300, seed=0)  # a failure has utility 0
    void = int(np.argmax(record.sources == "safe"))
    assert "below the least total" in agent.certifier.invalid_reason and (record.sources[void:] == "safe").all()
    assert list(agent.bounds()) == ["incumbent"] and "below the least total" in agent.plan().reason


def test_planning_that_fails_deploys_the_incumbent_and_says_why():
    agent = observing(two_steps())
    agent.proposer.propose = lambda goal: 1 / 0
    plan = agent.plan()
    assert plan.source == "safe" and "planning failed: ZeroDivisionError" in plan.reason


# small slack


def small_slack(seed):
    """Return the problem of a seed with an incumbent that takes random actions so often that ξ/(b + ξ) is 4 %."""
    cmdp = es.make("tabular", seed=seed)
    greedy, b = cmdp.task.incumbent.table(), cmdp.task.thresholds[0]
    uniform, low, high = np.full_like(greedy, 1 / greedy.shape[2]), 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        enough = 0.96 * cmdp.evaluate((1 - middle) * greedy + middle * uniform)[1] >= b
        low, high = (middle, high) if enough else (low, middle)
    table = (1 - low) * greedy + low * uniform
    return es.LinearCMDP(
        cmdp.P, cmdp.task.reward, cmdp.task.utilities[0], initial_state=cmdp.task.initial_state, threshold=b,
        safe_policy=table,
    )  # fmt: skip


def test_with_small_slack_a_policy_of_large_utility_is_certified_first_and_pays(monkeypatch):
    """A trial at a weight of 4 % takes 25 times its episodes; a certified policy of large utility pays for more."""

    def regrets():
        records = [es.run(cmdp, observing(cmdp), 5000, seed=0) for cmdp in map(small_slack, range(6000, 6006))]
        assert not any(record.violating().any() for record in records)
        return sum(record.regret()[-1] for record in records)

    agent = observing(small_slack(6000))
    agent.plan()
    assert agent.certifier.trials.first_weights()[0] == pytest.approx(0.04)
    assert agent.certifier.trials.paying == 1
    with_rule = regrets()
    monkeypatch.setattr("episafe.certify.trials.MOST_PAYERS", 0)
    assert with_rule < 0.7 * regrets()


def test_certifier_states_what_it_promises_and_assumes():
    settings = observing(two_steps(), delta=0.1).settings()
    assert settings["certifier"] == "observation" and settings["level"] == "theorem" and settings["delta"] == 0.1
    assert "0.9" in settings["statement"] and "late or lost" in settings["statement"]
    with pytest.raises(es.InvalidProblem):
        Observation(delta=0.0)
    with pytest.raises(es.InvalidProblem, match="slack"):
        observing(replace(two_steps().task, constraints=(es.Constraint(None, 0.5, None),)))
