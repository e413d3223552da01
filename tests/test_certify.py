"""Certifiers at work: what is deployed, what is refused, coverage over whole runs, and both loops bit for bit."""

import math

import numpy as np
import pytest

import episafe as es
from episafe.certify.base import Deployable
from episafe.certify.fresh_data import num_bounds, pessimistic_utility
from episafe.kernels.mixture_choice import choose
from episafe.kernels.wealth import BETS, blank_trials
from episafe.runs.run import Simulation, loop, plain_loop

NAMES = ("tabular", "streaming", "linear")
DELTA = 0.05


def observing(task, delta=DELTA):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation(delta))


def fresh(task, delta=DELTA):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.FreshData(delta))


def wrong_bounds(cmdp, agent, record):
    """Whether any bound of a deployed mixture or of a policy on trial was above the exact utility."""
    of_plans = (record.utility_bounds > record.utility_values + 1e-9).any()
    certificate = agent.certificate
    on_trial = [
        certificate.ledger.trials.lower[i] > cmdp.evaluate(policy)[1] + 1e-9
        for i, policy in enumerate(certificate.ledger.policies)
        if policy is not None
    ]
    return bool(of_plans or any(on_trial))


# ---- mixtures


def test_a_mixture_acts_through_a_drawn_component_and_is_worth_the_weighted_values():
    cmdp = es.make("tabular", seed=3)
    parts = cmdp.task.safe_policy, cmdp.optimal_policy()
    mixture = es.MixturePolicy(parts, (0.3, 0.7))
    rng = np.random.default_rng(0)
    drawn = [mixture.draw(rng) for _ in range(4000)]
    assert all(component.policy is parts[index] for index, component in drawn)
    assert abs(np.mean([index for index, _ in drawn]) - 0.7) < 0.03
    values = np.array([cmdp.evaluate(part) for part in parts])
    np.testing.assert_allclose(cmdp.evaluate(mixture), [0.3, 0.7] @ values, rtol=1e-14)
    for refused in (mixture.table, lambda: mixture.probabilities(0, 0)):
        with pytest.raises(ValueError, match="draw"):
            refused()
    with pytest.raises(es.InvalidProblem, match="weights"):
        es.MixturePolicy(parts, (0.3, 0.6))


def test_the_mixture_chosen_is_the_best_of_all_that_reach_the_threshold():
    """Against a fine grid of all mixtures of all pairs."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        trials, b = blank_trials(np.ones(1), 5), 1.0
        trials.in_use[:] = 1
        trials.lower[:], trials.guess[:] = rng.uniform(0, 2, 5), rng.uniform(0, 1, 5)
        trials.lower[0] = b + rng.uniform(0, 1)
        i, j, p, bound = choose(trials, b, 0)
        assert bound >= b
        weights = np.linspace(0, 1, 2001)
        best = -math.inf
        for x in range(5):
            for y in range(5):
                feasible = weights * trials.lower[x] + (1 - weights) * trials.lower[y] >= b
                if feasible.any():
                    values = weights * trials.guess[x] + (1 - weights) * trials.guess[y]
                    best = max(best, values[feasible].max())
        assert p * trials.guess[i] + (1 - p) * trials.guess[j] >= best - 1e-9


def test_before_anything_is_known_the_slack_pays_for_the_candidate():
    """p = ξ/(b + ξ): the candidate might earn nothing at all."""
    task = es.make("tabular", seed=0).task
    plan = observing(task).plan()
    p = task.slack / (task.threshold + task.slack)
    np.testing.assert_allclose(plan.policy.weights, [p, 1 - p], rtol=1e-9)
    assert plan.policy.components[1] is task.safe_policy
    assert plan.utility_bound >= task.threshold
    assert plan.level == "theorem"


# ---- runs


@pytest.mark.parametrize("name", NAMES)
def test_observation_never_violates_and_costs_a_fraction_of_the_incumbent(name):
    regrets, incumbent = [], []
    for seed in range(100, 120):
        cmdp = es.make(name, seed)
        agent = observing(cmdp.task)
        record = es.run(cmdp, agent, 3000, seed)
        assert record.violations().max() == 0
        assert not wrong_bounds(cmdp, agent, record)
        regrets.append(record.regret()[-1])
        incumbent.append(3000 * (record.optimum - cmdp.evaluate(cmdp.task.safe_policy)[0]))
    assert np.mean(regrets) < 0.4 * np.mean(incumbent)


@pytest.mark.parametrize("name", ["tabular", "linear"])
def test_the_compiled_mixture_loop_is_the_plain_loop_bit_for_bit(name):
    cmdp = es.make(name, 7)
    made = []
    for played in (plain_loop, loop):
        agent = observing(cmdp.task)
        run = Simulation(cmdp, agent, 700, 5)
        list(played(run.world, run.session, run.columns))
        facts, coins, names = run.columns.facts, run.columns.coins, np.array(list(run.columns.names))
        made.append((*facts, *coins, names, *agent.certificate.ledger.trials, agent.planner.information))
        plan = agent.plan()
        made[-1] += (np.array([plan.id, plan.lam, plan.utility_bound]),)
    for plain, compiled in zip(*made, strict=True):
        np.testing.assert_array_equal(plain, compiled)


def test_records_keep_the_coins(tmp_path):
    cmdp = es.make("streaming", seed=1)
    record = es.run(cmdp, observing(cmdp.task), 500, 0)
    np.testing.assert_allclose(record.weights.sum(axis=1), 1, atol=1e-12)
    acted = record.weights[np.arange(500), record.components]
    assert (acted > 0).all()
    record.save(tmp_path)
    again = es.Record.load(tmp_path)
    np.testing.assert_array_equal(again.components, record.components)
    np.testing.assert_array_equal(again.weights, record.weights)
    assert (again.settings["agent"], again.settings["level"]) == ("opse-observation", "theorem")
    assert (again.settings["certifier"], again.settings["delta"]) == ("observation", DELTA)


class Halves:
    """A certifier of somebody else's: half of the incumbent, half of a policy that is as safe."""

    name = "halves"

    def begin(self, task):
        return HalvesCertificate(task)

    def settings(self):
        return {}


class HalvesCertificate:
    def __init__(self, task):
        self.task, self.seen = task, []
        self.mixture = es.MixturePolicy([task.safe_policy, es.TablePolicy(task.safe_policy.table())], [0.5, 0.5])

    def is_due(self):
        return False

    wants_candidate = is_due

    def deployment(self):
        return Deployable(self.mixture, "search", 0.0, self.task.threshold)

    def weigh(self, policy, states, actions, utility, reward):
        return policy

    def take_in(self, weighed):
        self.seen.append(weighed)


def test_a_certifier_of_somebody_else_may_deploy_mixtures():
    cmdp = es.make("tabular", seed=3)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=Halves())
    record = es.run(cmdp, agent, 40)
    assert agent.certificate.seen == [agent.certificate.mixture] * 40
    assert set(record.components.tolist()) == {0, 1}
    np.testing.assert_allclose(record.weights, 0.5)


def test_states_need_not_be_listed():
    """A walk given by functions: the planner proposes, mixtures are drawn, nothing knows the states."""
    cmdp = es.SampledCMDP(
        features=lambda s: np.eye(4)[[min(s, 1), 2 + min(s, 1)]],
        reward=lambda h, s: [0.0, 1.0],
        utility=lambda h, s: [1.0, 0.2],
        sample=lambda h, s, a, rng: int(rng.random() < 0.5) + s,
        horizon=3,
        num_actions=2,
        initial_state=0,
        threshold=2.0,
        safe_policy=lambda h, s: [1.0, 0.0],
        slack=1.0,
    )
    record = es.run(cmdp, observing(cmdp.task), 400, 0)
    assert record.components is not None and record.components.max() == 1
    assert record.reward_totals[-100:].mean() > 0.5  # the incumbent earns nothing
    with pytest.raises(TypeError, match="Observation"):
        fresh(cmdp.task)


# ---- what learn is told


def played(cmdp, plan, seed=0):
    rng, task = np.random.default_rng(seed), cmdp.task
    component, policy = plan.policy.draw(rng)
    states, actions = [task.initial_state], []
    for h in range(task.horizon):
        actions.append(int(rng.choice(task.num_actions, p=policy.probabilities(h, states[-1]))))
        states.append(int(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
    return component, states, actions


def test_learning_needs_the_component_and_refuses_what_cannot_be():
    cmdp = es.make("tabular", seed=2)
    agent = observing(cmdp.task)
    plan = agent.plan()
    component, states, actions = played(cmdp, plan)
    before = agent.certificate.ledger.trials.products.copy()
    with pytest.raises(es.InvalidEpisode, match=r"which one acted.*draw"):
        agent.learn(es.Episode(states, actions), plan_id=plan.id)
    with pytest.raises(es.InvalidEpisode, match="which one acted"):
        agent.learn(es.Episode(states, actions, component=2), plan_id=plan.id)
    with pytest.raises(es.InvalidEpisode, match="0 or more"):
        agent.learn(es.Episode(states, actions, utilities=[-1.0] * 4, component=component), plan_id=plan.id)
    np.testing.assert_array_equal(agent.certificate.ledger.trials.products, before)
    agent.learn(es.Episode(states, actions))  # of unknown origin: the planner learns, the certificate does not
    np.testing.assert_array_equal(agent.certificate.ledger.trials.products, before)
    agent.learn(es.Episode(states, actions, utilities=[0.5] * 4, component=component), plan_id=plan.id)
    trials = agent.certificate.ledger.trials
    assert math.isclose(trials.rewards[:, 1].sum(), 1)  # shares of one episode
    share, means = trials.rewards[1, 1], trials.means
    factors = 1 + np.multiply.outer(share * (2 / means - 1), BETS)  # of observed utility 2
    np.testing.assert_allclose(trials.products[1], factors, rtol=1e-12)


def test_late_episodes_count_for_the_plan_that_they_belong_to():
    cmdp = es.make("tabular", seed=2)
    agent = observing(cmdp.task)
    first = agent.plan()
    late = played(cmdp, first, seed=1)
    for seed in range(2, 200):  # candidates come and go meanwhile
        plan = agent.plan()
        drawn = played(cmdp, plan, seed) if hasattr(plan.policy, "draw") else None
        if drawn:
            agent.learn(es.Episode(drawn[1], drawn[2], component=drawn[0]), plan_id=plan.id)
    before = agent.certificate.num_episodes
    agent.learn(es.Episode(late[1], late[2], component=late[0]), plan_id=first.id)
    assert agent.certificate.num_episodes == before + 1


def test_bad_settings_are_refused():
    task = es.make("tabular", seed=0).task
    for delta in (0, 1, -0.1, math.nan, "0.05", True):
        for certifier in (es.certify.Observation, es.certify.FreshData):
            with pytest.raises(ValueError, match="delta must be a number in"):
                certifier(delta)
    with pytest.raises(TypeError, match=r"es\.certify\.Observation"):
        es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation)
    with pytest.raises(ValueError, match="leave out replan"):
        es.OPSE(task, es.Constants.proposing(), es.Doubling(), certifier=es.certify.Observation())


def test_the_default_certifier_is_the_papers():
    cmdp = es.make("streaming", seed=0)
    constants = es.Constants.paper("streaming")
    agents = es.OPSE(cmdp.task, constants), es.OPSE(cmdp.task, constants, certifier=es.certify.Model())
    records = [es.run(cmdp, agent, 300, 1) for agent in agents]
    np.testing.assert_array_equal(records[0].reward_values, records[1].reward_values)
    assert records[0].components is None
    assert "certifier" not in records[0].settings


# ---- coverage over whole runs


def coverage(num_runs, build, num_episodes=400):
    """Runs with any wrong bound: of what was deployed at any time, and of what is on trial at the end."""
    wrong = 0
    for seed in range(num_runs):
        cmdp = build(seed % 20)
        agent = observing(cmdp.task)
        wrong += wrong_bounds(cmdp, agent, es.run(cmdp, agent, num_episodes, seed))
        assert agent.certificate.ledger.num_candidates >= 2
    return wrong


def misspecified(seed):
    """Random features, to which the kernel is not linear at all."""
    cmdp = es.make("tabular", 50 + seed)
    phi = np.random.default_rng(seed).dirichlet(np.ones(3), (5, 3))
    task = cmdp.task
    return es.LinearCMDP(
        cmdp.P, task.reward, task.utility, phi=phi, initial_state=task.initial_state, threshold=task.threshold
    )


PROBLEMS = {
    "tabular": lambda seed: es.make("tabular", 50 + seed),
    "streaming": lambda seed: es.make("streaming", 50 + seed),
    "linear": lambda seed: es.make("linear", 50 + seed, num_states=20),
    "misspecified": misspecified,
    "tiny slack": lambda seed: es.make("tabular", 50 + seed, threshold_scale=0.99),
    "huge slack": lambda seed: es.make("tabular", 50 + seed, threshold_scale=0.02),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_coverage_over_runs(kind):
    assert coverage(100, PROBLEMS[kind]) <= DELTA * 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROBLEMS)
def test_coverage_over_a_thousand_runs(kind):
    assert coverage(1000, PROBLEMS[kind]) <= DELTA * 1000


def noisy_run(seed, num_episodes, delta=DELTA):
    """Whether a bound was wrong where the utility is unknown and noisy and the start is random.

    The agent is told the mean utility with two actions swapped, and observes Bernoulli(u) in place of u.
    """
    cmdp, rng = es.make("tabular", 50 + seed % 20, "text", threshold_scale=0.5), np.random.default_rng(seed)
    H, S, A = cmdp.task.reward.shape
    utility = 0.1 + 0.8 * np.random.default_rng(seed % 20).random((H, S, A))
    start = np.full(S, 1 / S)
    values = {}

    def true_utility(policy):
        if id(policy) not in values:
            V = np.zeros(S)
            for h in reversed(range(H)):
                V = np.einsum("sa,sa->s", policy.table()[h], utility[h] + cmdp.P[h] @ V)
            values[id(policy)] = float(start @ V)
        return values[id(policy)]

    incumbent = es.TablePolicy(np.full((H, S, A), 1 / A))
    b = 0.7 * true_utility(incumbent)
    constraint = es.Constraint(utility[:, :, [1, 0, 2]], b, 0.3 / 0.7 * b)
    agent = observing(es.Task(H, S, A, cmdp.task.reward, None, 0, constraint, incumbent), delta)
    for _ in range(num_episodes):
        plan = agent.plan()
        mixture = plan.policy if hasattr(plan.policy, "draw") else es.MixturePolicy([plan.policy], [1.0])
        component, policy = mixture.draw(rng)
        states, actions, seen = [int(rng.choice(S, p=start))], [], []
        for h in range(H):
            s = states[-1]
            a = int(rng.choice(A, p=policy.table()[h, s]))
            actions.append(a)
            seen.append(float(rng.random() < utility[h, s, a]))
            states.append(int(rng.choice(S, p=cmdp.P[h, s, a])))
        agent.learn(es.Episode(states, actions, utilities=seen, component=component), plan_id=plan.id)
        value = sum(w * true_utility(c) for w, c in zip(mixture.weights, mixture.components, strict=True))
        if max(b, plan.utility_bound) > value + 1e-9:
            return True
    bounds = agent.certificate.ledger.trials.lower
    return any(
        bounds[i] > true_utility(p) + 1e-9 for i, p in enumerate(agent.certificate.ledger.policies) if p is not None
    )


def test_coverage_with_an_unknown_noisy_utility_and_a_random_start():
    assert sum(noisy_run(seed, 130) for seed in range(40)) <= DELTA * 40


@pytest.mark.slow
def test_coverage_with_an_unknown_noisy_utility_over_a_thousand_runs():
    assert sum(noisy_run(seed, 130) for seed in range(1000)) <= DELTA * 1000


# ---- fresh data


def sampled_folds(cmdp, table, num_episodes, rng):
    """Folds (n, 3) of (s, a, s'), one a step but the last, from episodes of `table`."""
    H, S, A = table.shape
    mass, folds = np.eye(S)[cmdp.task.initial_state], []
    for h in range(H - 1):
        s = rng.choice(S, num_episodes, p=mass / mass.sum())
        a = (rng.random(num_episodes)[:, None] > table[h, s].cumsum(axis=1)).sum(axis=1).clip(max=A - 1)
        t = (rng.random(num_episodes)[:, None] > cmdp.P[h, s, a].cumsum(axis=1)).sum(axis=1).clip(max=S - 1)
        folds.append(np.stack([s, a, t], axis=1))
        mass = np.einsum("s,sa,sat->t", mass, table[h], cmdp.P[h])
    return folds


def wrong_evaluations(cmdp, num_evaluations):
    """How often the bound on the incumbent, from 200 transitions a fold of the uniform policy, is above its utility."""
    task, rng, wrong = cmdp.task, np.random.default_rng(0), 0
    behaviour, true = np.full(task.reward.shape, 1 / task.num_actions), cmdp.evaluate(task.safe_policy)[1]
    log_term = math.log(num_bounds(task) / DELTA)
    for _ in range(num_evaluations):
        folds = sampled_folds(cmdp, behaviour, 200, rng)
        wrong += pessimistic_utility(task, task.safe_policy.table(), folds, log_term) > true
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_coverage_of_fresh_data_over_a_thousand_evaluations(name):
    assert wrong_evaluations(es.make(name, 31), 1000) <= DELTA * 1000


@pytest.mark.parametrize("name", NAMES)
def test_the_pessimistic_utility_is_below_the_true_one_and_tends_to_it(name):
    cmdp = es.make(name, 31)
    task = cmdp.task
    assert wrong_evaluations(cmdp, 200) <= DELTA * 200
    behaviour, true = np.full(task.reward.shape, 1 / task.num_actions), cmdp.evaluate(task.safe_policy)[1]
    log_term = math.log(num_bounds(task) / DELTA)
    folds = sampled_folds(cmdp, behaviour, 400_000, np.random.default_rng(1))
    assert pessimistic_utility(task, task.safe_policy.table(), folds, log_term) > 0.9 * true


def lottery(num_prizes=1000, phi=True):
    """Two steps: a state is drawn uniformly, then action 0 is worth 1 and action 1 nothing. d = 1."""
    S = num_prizes
    P, utility = np.full((2, S, 2, S), 1 / S), np.zeros((2, S, 2))
    utility[1, :, 0] = 1
    features = np.ones((S, 2, 1)) if phi else None
    return es.LinearCMDP(P, np.zeros((2, S, 2)), utility, phi=features, threshold=0.1)


def test_a_policy_that_has_seen_the_data_is_certified_wrongly():
    """The control: action 0 in the states of the batch, action 1 elsewhere. On its own batch it looks perfect."""
    cmdp, rng = lottery(), np.random.default_rng(0)
    task, log_term = cmdp.task, math.log(1 / DELTA)
    uniform = np.full((2, 1000, 2), 0.5)
    own, other = 0, 0
    for _ in range(50):
        batch, later = (sampled_folds(cmdp, uniform, 200, rng) for _ in range(2))
        table = np.zeros((2, 1000, 2))
        table[:, :, 1] = 1
        table[1, batch[0][:, 2]] = [1.0, 0.0]
        true = cmdp.evaluate(table)[1]
        own += pessimistic_utility(task, table, batch, log_term) > true
        other += pessimistic_utility(task, table, later, log_term) > true
    assert own == 50
    assert other <= DELTA * 50


def test_a_third_of_the_regression_radius_fails():
    """One bound on a fair coin's value: ln(1/δ)/9 in place of ln(1/δ), and nothing for det Λ."""
    rng, n, wrong = np.random.default_rng(0), 400, 0
    cmdp = lottery(2)
    table = np.zeros((2, 2, 2))
    table[:, 0, 0] = table[:, 1, 1] = 1
    full = math.log(1 / DELTA)
    for _ in range(1000):
        folds = sampled_folds(cmdp, table, n, rng)
        estimate = (folds[0][:, 2] == 0).mean()
        bound = pessimistic_utility(cmdp.task, table, folds, full)
        wrong += estimate - (estimate - bound) / 3 > 0.5
    assert wrong / 1000 > 1.5 * DELTA


def test_deviations_keep_the_share_of_utility_that_is_promised():
    """V of (1−ε)π + επ' is at least (1−ε)^H V of π, whatever π' is."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        cmdp = es.make("tabular", seed)
        table, H = cmdp.task.safe_policy.table(), cmdp.task.horizon
        other = rng.dirichlet(np.full(3, 0.1), table.shape[:2])
        for epsilon in (0.01, 0.2, 0.7):
            mixed = cmdp.evaluate((1 - epsilon) * table + epsilon * other)[1]
            assert mixed >= (1 - epsilon) ** H * cmdp.evaluate(table)[1] - 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_fresh_data_leaves_the_incumbent_and_never_violates(name):
    """Every plan is a Markov policy; within 11,000 episodes some policy away from the incumbent is certified."""
    for seed in (100, 101, 102):
        cmdp = es.make(name, seed)
        agent = fresh(cmdp.task)
        record = es.run(cmdp, agent, 11_000, seed)
        assert record.violations().max() == 0
        assert (record.utility_bounds <= record.utility_values + 1e-9).all()
        assert agent.certificate.num_certified >= 1
        assert np.abs(agent.certificate.certified - cmdp.task.safe_policy.table()).max() > 0.04
        assert agent.plan().policy.table().shape == cmdp.task.reward.shape


def test_epochs_have_lengths_fixed_in_advance():
    cmdp = es.make("streaming", seed=0)
    changes = [np.flatnonzero(np.diff(es.run(cmdp, fresh(cmdp.task), 3000, s).plan_ids)) + 1 for s in (0, 1)]
    np.testing.assert_array_equal(changes[0], changes[1])
    assert len(changes[0]) == 3  # 500, 750, 1125 episodes, each rounded up to whole folds
