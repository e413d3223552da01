"""Box: the confidence box, what it is worth to policies, what is deployed by it, and what breaks it."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import betaln

import episafe as es
import oracles
from episafe.certify.ordered_reports import OrderedReports
from episafe.kernels.transition_box import TransitionBox, greedy_bounds, interval, policy_bounds, tighten
from episafe.problems.exact_answers import policy_values

DELTA = 0.05


def boxed(task, delta=DELTA):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Box(delta))


def transition_box(lower, upper):
    return TransitionBox(lower, upper, 1 - lower.sum(axis=-1))


def random_box(rng, steps=3, S=4, A=2):
    """A box around a random kernel, which is returned too; some rows are not known at all."""
    P = rng.dirichlet(np.full(S, 0.5), (steps, S, A))
    width = rng.choice([0.0, 0.05, 0.3, 1.0], size=(steps, S, A, 1))
    lower, upper = np.clip(P - width * rng.random(P.shape), 0, 1), np.clip(P + width * rng.random(P.shape), 0, 1)
    return P, lower, upper


# ---- the box


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 50), (7, 20), (300, 1000), (1, 10**6)])
def test_the_interval_is_where_the_mixture_has_not_gained_enough(k, n):
    """The wealth against p is B(k+½, n−k+½)/B(½, ½) over p^k (1−p)^(n−k); at the ends it is 1/δ'."""
    log_term = 9.0
    low, high = interval(float(k), float(n), log_term)

    def log_wealth(p):
        likelihood = (k * np.log(p) if k else 0.0) + ((n - k) * np.log1p(-p) if k < n else 0.0)
        return betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5) - likelihood

    assert 0 <= low <= k / n <= high <= 1
    for end, outside in ((low, k == 0), (high, k == n)):
        if not outside:
            assert log_wealth(end) == pytest.approx(log_term, abs=1e-6)


def test_intervals_cover_at_all_times_together():
    """1000 sequences of 500 draws, δ' = 0.05: the share of those that ever leave the interval is below δ'."""
    rng, wrong = np.random.default_rng(0), 0
    for p in rng.choice([0.0, 0.02, 0.3, 0.5, 0.9], 1000):
        k = np.cumsum(rng.random(500) < p)
        ends = [interval(float(k[n - 1]), float(n), np.log(1 / DELTA)) for n in range(1, 501, 3)]
        wrong += any(not low <= p <= high for low, high in ends)
    assert wrong <= DELTA * 1000


def test_the_box_is_everything_where_nothing_was_seen_and_only_ever_shrinks():
    counts = np.zeros((2, 3, 2, 3))
    lower, upper = np.zeros(counts.shape), np.ones(counts.shape)
    counts[0, 1, 0] = [5, 0, 15]
    tighten(counts, 5.0, lower, upper)
    assert np.all(lower[1] == 0) and np.all(upper[1] == 1)
    before = lower[0, 1, 0].copy(), upper[0, 1, 0].copy()
    np.testing.assert_array_equal(before, np.transpose([interval(k, 20.0, 5.0) for k in (5.0, 0.0, 15.0)]))
    counts[0, 1, 0] = [25, 0, 15]
    tighten(counts, 5.0, lower, upper)
    assert np.all(lower[0, 1, 0] >= before[0]) and np.all(upper[0, 1, 0] <= before[1])


# ---- what it is worth


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("steps", [1, 2])
def test_bounds_of_a_policy_equal_a_linear_program_a_row(seed, steps):
    rng = np.random.default_rng(seed)
    _, lower, upper = random_box(rng, steps)
    signals, policy = rng.random((3, 3, 4, 2)), rng.dirichlet(np.full(2, 0.3), (3, 4))
    policy[0, 1] = [1, 0]
    found = policy_bounds(signals, policy, transition_box(lower, upper))
    for g, (state, sign) in itertools.product(range(3), [(0, 1), (2, 1)]):
        expected = oracles.box_value(signals[g], policy, lower, upper, state, -sign if g == 0 else sign)
        assert found[g, state] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_every_kernel_of_the_box_is_within_the_bounds(seed):
    rng = np.random.default_rng(seed)
    P, lower, upper = random_box(rng)
    reward, utility, policy = rng.random((3, 4, 2)), rng.random((3, 4, 2)), rng.dirichlet(np.ones(2), (3, 4))
    V_r, V_u = policy_values(P, reward, utility, policy, 0)
    best, worst = policy_bounds(np.stack([reward, utility]), policy, transition_box(lower, upper))[:, 0]
    assert best >= V_r - 1e-12 and worst <= V_u + 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_greedy_bounds_are_those_of_the_policy_that_is_found(seed):
    rng = np.random.default_rng(seed)
    _, lower, upper = random_box(rng)
    signals, box = rng.random((2, 3, 4, 2)), transition_box(lower, upper)
    for weights in ([1.0, 0.0], [0.0, 1.0], [1.0, 0.7]):
        actions, V = greedy_bounds(signals, np.array(weights), box)
        np.testing.assert_allclose(V, policy_bounds(signals, np.eye(2)[actions], box), atol=1e-12)
        if 0.0 in weights:  # of one signal alone the greedy policy is the best of all
            g = int(weights[0] == 0)
            for table in itertools.product(np.eye(2), repeat=4):
                other = np.eye(2)[actions].copy()
                other[1] = table
                assert policy_bounds(signals, other, box)[g, 0] <= V[g, 0] + 1e-12


# ---- what is deployed


@pytest.mark.parametrize("name", ["tabular", "streaming"])
def test_it_leaves_the_incumbent_and_never_violates(name):
    """At first by a coin, if at all; then by Markov policies alone. Regret falls far below the incumbent's."""
    for seed in (100, 101, 102):
        cmdp = es.make(name, seed)
        agent = boxed(cmdp.task)
        record = es.run(cmdp, agent, 4000, seed)
        proved = record.sources != "safe"
        assert record.violations().max() == 0
        assert np.all(record.utility_bounds[proved] >= cmdp.task.threshold)
        assert np.all(record.utility_bounds[proved] <= record.utility_values[proved] + 1e-9)
        coins = np.flatnonzero(record.weights.max(axis=1) < 1)
        assert len(coins) < 1000 and np.all(np.diff(coins) == 1)
        assert agent.plan().policy.table().shape == cmdp.task.reward.shape
        incumbent = 4000 * (cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0])
        assert record.regret()[-1] < 0.5 * incumbent


def test_before_anything_is_seen_the_incumbents_slack_pays_for_the_candidate():
    """Nothing is known of the candidate but that utilities are not negative: its weight is ξ/(b + ξ)."""
    cmdp = es.make("tabular", 101)
    task = cmdp.task
    plan = boxed(task).plan()
    assert plan.policy.components[1] is task.safe_policy and plan.policy.names == ("proposal-1", "incumbent")
    assert plan.policy.weights[0] == pytest.approx(task.slack / (task.threshold + task.slack), abs=0.01)
    assert plan.utility_bound >= task.threshold


def test_the_bound_of_a_plan_is_the_least_utility_over_the_box():
    cmdp = es.make("tabular", 100)
    agent = boxed(cmdp.task)
    es.run(cmdp, agent, 3000)
    agent.certificate.next_plan, agent._learned = 0, True  # plan now, by the box that is in force
    plan, task = agent.plan(), cmdp.task
    least = oracles.box_value(
        task.utility, plan.policy.table(), agent.certificate.lower, agent.certificate.upper, task.initial_state, 1
    )
    assert plan.utility_bound == pytest.approx(least, abs=1e-9)


def alike(H=5, S=3, A=2, seed=1):
    """A problem whose steps are alike, and say so."""
    rng = np.random.default_rng(seed)
    P = np.repeat(rng.dirichlet(np.ones(S), (1, S, A)), H, axis=0)
    signals = {"reward": rng.random((H, S, A)), "utility": rng.random((H, S, A))}
    largest = es.LinearCMDP(P, **signals, threshold=-1)
    most = largest.evaluate(largest.task.safe_policy)[1]
    return lambda told: es.LinearCMDP(P, **signals, threshold=0.8 * most, time_homogeneous=told)


def test_alike_steps_share_one_row_of_the_box_and_all_transitions_count():
    make, K = alike(), 300
    shared, apart = (boxed(make(told).task) for told in (True, False))
    records = [es.run(make(told), agent, K) for told, agent in ((True, shared), (False, apart))]
    assert shared.certificate.counts.shape == (1, 3, 2, 3) and shared.certificate.counts.sum() == 5 * K
    assert apart.certificate.counts.shape == (4, 3, 2, 3) and apart.certificate.counts.sum() == 4 * K
    assert [record.violations().max() for record in records] == [0, 0]
    assert records[0].utility_bounds[-1] > records[0].threshold
    widths = [float((agent.certificate.upper - agent.certificate.lower).mean()) for agent in (shared, apart)]
    assert widths[0] < 0.7 * widths[1]


@pytest.mark.parametrize(("H", "S"), [(1, 3), (3, 1)])
def test_one_step_and_one_state_are_no_special_cases(H, S):
    """With one step nothing of the kernel matters, and the optimum is deployed at once."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(S), (H, S, 3))
    cmdp = es.LinearCMDP(P, rng.random((H, S, 3)), rng.random((H, S, 3)), threshold=0.5 * H)
    record = es.run(cmdp, boxed(cmdp.task), 50)
    assert record.violations().max() == 0
    if H == 1:
        assert record.regret()[-1] == pytest.approx(0, abs=1e-3)


def test_a_drift_that_no_kernel_fits_ends_in_the_incumbent():
    """The coin of nature changes from 0.95 to 0.05: no box holds both."""
    cmdp = chain()
    agent = boxed(cmdp.task)
    for good in [1] * 400 + [2] * 400:
        agent.learn(es.Episode([0, good, 0], [0, 0], component=0), plan_id=agent.plan().id)
    assert agent.plan().source == "safe" and "no kernel fits" in agent.plan().reason


# ---- what breaks it


def chain(threshold=0.6):
    """Action 0 leads to the good state 1 with 0.9, action 1, which pays, with 0.5."""
    P = np.zeros((2, 3, 2, 3))
    P[0, :, 0], P[0, :, 1], P[1] = [0, 0.9, 0.1], [0, 0.5, 0.5], [1, 0, 0]
    utility, reward = np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    utility[1, 1], reward[0, :, 1] = 1, 1
    return es.LinearCMDP(P, reward, utility, threshold=threshold)


def is_wrong(cmdp, certificate, shrink=1.0):
    """Whether the true kernel is outside of the box, or of one that is smaller about its estimates."""
    P, steps = cmdp.P[: len(certificate.counts)], len(certificate.counts)
    centre = certificate._estimate()[:steps]
    seen = certificate.counts.sum(axis=-1) > 0
    low, high = (centre + shrink * (end - centre) for end in (certificate.lower, certificate.upper))
    return bool(((P < low - 1e-12) | (P > high + 1e-12))[seen].any())


def boxes(name, num_runs, num_episodes):
    """The certificates of short runs, each on a problem of its own."""
    for seed in range(num_runs):
        cmdp = es.make(name, seed)
        agent = boxed(cmdp.task)
        es.run(cmdp, agent, num_episodes, seed)
        agent.certificate.deployment()  # the box of all that was seen
        yield cmdp, agent.certificate


@pytest.mark.parametrize("name", ["tabular", "streaming"])
def test_the_box_covers_and_a_third_of_it_does_not(name):
    """`benchmarks/box.py` counts a thousand runs."""
    found = list(boxes(name, 40, 120))
    assert sum(is_wrong(*one) for one in found) <= DELTA * 40
    assert sum(is_wrong(*one, shrink=1 / 3) for one in found) > 3 * DELTA * 40


def lossy(cmdp, agent, num_episodes, seed, *, in_order):
    """Deployments whose reports are mostly lost where the episode went badly; `in_order`: somebody counts them."""
    rng, certificate = np.random.default_rng(seed), agent.certificate
    for k in range(num_episodes):
        plan = agent.plan()
        _, policy = plan.policy.draw(rng)
        action = policy.act(0, 0, rng)
        good = rng.random() < cmdp.P[0, 0, action, 1]
        states, actions = np.array([0, 1 if good else 2, 0]), np.array([action, 0])
        outcome = SimpleNamespace(states=states, actions=actions, utility=float(good), reward=0.0, deployment=k)
        if in_order:
            certificate.expect(plan.policy, k)
        if good or rng.random() < 0.1:
            weighed = certificate.judge(plan.policy, outcome) if in_order else (None, (states, actions))
            certificate.take_in(weighed)
            agent._learned = True
        yield cmdp.evaluate(plan.policy)[1] >= cmdp.task.threshold


def test_lost_reports_break_it_only_where_nobody_counts_deployments():
    """Nine of ten failures are never reported: in order nothing false is deployed, as they come it always is."""
    safe = {True: 0, False: 0}
    for in_order, seed in itertools.product((True, False), range(10)):
        cmdp = chain()
        safe[in_order] += all(lossy(cmdp, boxed(cmdp.task), 400, seed, in_order=in_order))
    assert safe == {True: 10, False: 0}


def test_reports_wait_for_the_deployments_before_them():
    order = OrderedReports()
    for number in (3, 4, 7, 8):
        order.expect(number)
    assert order.take(4, "b") == [] and order.take(8, "d") == []
    assert order.take(3, "a") == ["a", "b"]
    assert order.take(5, "never expected") == []
    order.expect(9)
    assert order.take(7, "c") == ["c", "d"]
    order.expect(10)
    order.expect(11)
    assert order.take(11, "f") == []
    order.abandon(10)
    order.expect(12)
    assert order.take(9, "e") == ["e"] and order.waiting == {}
    assert order.take(11, "f") == order.take(12, "g") == []


@pytest.mark.parametrize("late", [0, 7])
def test_the_order_of_reports_changes_nothing_once_all_are_there(late, tmp_path):
    """Also through a file while some wait for their turn."""
    cmdp = chain()
    rng, episodes = np.random.default_rng(3), []
    for _ in range(60):
        action = int(rng.integers(2))
        good = rng.random() < cmdp.P[0, 0, action, 1]
        episodes.append((np.array([0, 1 if good else 2, 0]), np.array([action, 0]), float(good)))
    straight, mixed = boxed(cmdp.task), boxed(cmdp.task)
    for agent in (straight, mixed):
        agent.plan()
    numbers = np.arange(60)
    if late:
        numbers = np.argsort(numbers + late * rng.random(60))
    for agent, turns in ((straight, np.arange(60)), (mixed, numbers)):
        for k in range(60):
            agent.certificate.expect(cmdp.task.safe_policy, k)
        for i, k in enumerate(turns.tolist()):
            states, actions, utility = episodes[k]
            told = SimpleNamespace(states=states, actions=actions, utility=utility, reward=0.0, deployment=k)
            agent.certificate.take_in(agent.certificate.judge(cmdp.task.safe_policy, told))
            if i == 30:
                agent.save(tmp_path / "state.npz")
                again = boxed(cmdp.task)
                again.restore(tmp_path / "state.npz")
                assert again.certificate._reports.waiting.keys() == agent.certificate._reports.waiting.keys()
                agent.certificate = again.certificate
    np.testing.assert_array_equal(mixed.certificate.counts, straight.certificate.counts)
    assert mixed.certificate.num_episodes == 60


# ---- what is refused


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (es.Episode([1, 1, 0], [0, 0], component=0), "fixed start 0"),
        (es.Episode([0, 1, 0], [0, 0], utilities=[0.0, 0.3], component=0), "needs a known utility"),
    ],
)
def test_what_contradicts_the_task_is_refused(episode, message):
    agent = boxed(chain().task)
    with pytest.raises(es.InvalidEpisode, match=message):
        agent.learn(episode, plan_id=agent.plan().id)
    assert agent.certificate.counts.sum() == 0


@pytest.mark.parametrize("delta", [0, 1, "0.05", np.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(ValueError, match="delta must be a number in"):
        es.certify.Box(delta)


def test_features_to_which_the_kernel_is_not_linear_are_no_matter():
    cmdp = chain()
    world = es.LinearCMDP(cmdp.P, cmdp.task.reward, cmdp.task.utility, phi=np.ones((3, 2, 1)), threshold=0.6)
    record = es.run(world, boxed(world.task), 600)
    assert record.violations().max() == 0 and (record.sources != "safe").any()
