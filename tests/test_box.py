"""Box: the confidence box, what it proves of policies, what is deployed by it, and what breaks it."""

import itertools

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import binom

import episafe as es
import oracles
from episafe.certify.box import Box
from episafe.kernels.simulation import policy_values
from episafe.kernels.tabular import interval, policy_bounds, tighten
from test_observation import GOOD, episode, play, two_steps

NONE = np.zeros(0)  # weights of a policy that is given


def boxed(cmdp, delta=0.05, certifier=Box):
    return es.SafeAgent(cmdp, certifier(delta))


def random_box(rng, steps=3, S=4, A=2):
    """Return a random kernel and a box around it; some rows are not known at all."""
    P = rng.dirichlet(np.full(S, 0.5), (steps, S, A))
    width = rng.choice([0.0, 0.05, 0.3, 1.0], size=(steps, S, A, 1))
    lower, upper = np.clip(P - width * rng.random(P.shape), 0, 1), np.clip(P + width * rng.random(P.shape), 0, 1)
    return P, (lower, upper)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 50), (300, 1000), (1, 10**6)])
def test_interval_ends_where_the_mixture_has_gained_enough(k, n):
    """The wealth against p is B(k+½, n−k+½)/B(½, ½) over p^k (1−p)^(n−k); at the ends it is 1/δ'."""
    low, high = interval(float(k), float(n), 9.0)
    assert 0 <= low <= k / n <= high <= 1
    for p in ([low] if k else []) + ([high] if k < n else []):
        likelihood = (k * np.log(p) if k else 0.0) + ((n - k) * np.log1p(-p) if k < n else 0.0)
        assert betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5) - likelihood == pytest.approx(9.0, abs=1e-6)


def test_intervals_cover_at_all_times_together_and_a_third_of_them_does_not(rng):
    wrong = np.zeros(2)
    for p in rng.choice([0.02, 0.3, 0.5, 0.9], 300):
        k = np.cumsum(rng.random(400) < p)
        ends = np.array([interval(float(k[n - 1]), float(n), np.log(1 / 0.3)) for n in range(1, 401, 3)])
        middle = (k / np.arange(1, 401))[::3, None]
        for j, (low, high) in enumerate((ends.T, (middle + (ends - middle) / 3).T)):
            wrong[j] += ((low > p) | (high < p)).any()
    assert wrong[0] <= binom.ppf(0.999, 300, 0.3) < wrong[1]


def test_box_only_shrinks_and_is_everything_where_nothing_was_seen():
    counts, lower, upper = np.zeros((2, 3, 2, 3)), np.zeros((2, 3, 2, 3)), np.ones((2, 3, 2, 3))
    counts[0, 1, 0] = [5, 0, 15]
    tighten(counts, 5.0, lower, upper)
    before = lower[0, 1, 0].copy(), upper[0, 1, 0].copy()
    np.testing.assert_array_equal(before, np.transpose([interval(k, 20.0, 5.0) for k in (5.0, 0.0, 15.0)]))
    counts[0, 1, 0] = [25, 0, 15]
    tighten(counts, 5.0, lower, upper)
    assert (lower[0, 1, 0] >= before[0]).all() and (upper[0, 1, 0] <= before[1]).all()
    assert (lower[1] == 0).all() and (upper[1] == 1).all()


@pytest.mark.parametrize(("seed", "steps"), [(0, 1), (1, 2), (2, 2)])
def test_bounds_of_a_policy_equal_a_linear_program_per_row(seed, steps):
    rng = np.random.default_rng(seed)
    _, box = random_box(rng, steps)
    signals, policy = rng.random((3, 3, 4, 2)), rng.dirichlet(np.full(2, 0.3), (3, 4))
    found = policy_bounds(signals, NONE, policy, *box)
    for g, state in itertools.product(range(3), (0, 2)):
        expected = oracles.box_value(signals[g], policy, *box, state, -1 if g == 0 else 1)
        assert found[g, state] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_every_kernel_of_the_box_is_within_the_bounds_and_greedy_is_best_of_one_signal(seed):
    rng = np.random.default_rng(seed)
    P, box = random_box(rng)
    signals, policy = rng.random((2, 3, 4, 2)), rng.dirichlet(np.ones(2), (3, 4))
    V_r, V_u = policy_values(P, *signals, policy, 0)
    best, worst = policy_bounds(signals, NONE, policy, *box)[:, 0]
    assert best >= V_r - 1e-12 and worst <= V_u + 1e-12
    for g, weights in enumerate(np.eye(2)):
        greedy = np.zeros((3, 4, 2))
        V = policy_bounds(signals, weights, greedy, *box)
        np.testing.assert_allclose(V, policy_bounds(signals, NONE, greedy, *box), atol=1e-12)
        for table in itertools.product(np.eye(2), repeat=4):
            other = greedy.copy()
            other[1] = table
            assert policy_bounds(signals, NONE, other, *box)[g, 0] <= V[g, 0] + 1e-12


@pytest.mark.parametrize(("name", "options"), [("tabular", {}), ("streaming", {}), ("tabular", {"num_constraints": 2})])
def test_runs_improve_and_the_bound_is_the_least_utility_over_the_box(name, options):
    cmdp = es.make(name, seed=101, **options)
    agent = boxed(cmdp)
    record, task = es.run(cmdp, agent, 2000, seed=1), cmdp.task
    proved = record.sources != "safe"
    assert not record.violating().any() and (record.bounds[proved] >= record.threshold).all()
    assert (record.bounds[proved] <= record.utility_values[proved] + 1e-9).all()
    gain = cmdp.optimal_value() - cmdp.evaluate(task.incumbent)[0]
    assert record.regret()[-1] < 0.6 * 2000 * gain and not record.mixed()[-1]
    box = agent.certifier
    box.add(es.core.agent.Candidate("v2", es.TablePolicy(task.incumbent.table())))  # costs no δ, and makes a new plan
    plan = box.plan()
    for c in range(task.num_constraints):
        least = oracles.box_value(task.utilities[c], plan.policy.table(), box.lower, box.upper, task.initial_state, 1)
        assert plan.bounds[c] == pytest.approx(least, abs=1e-9)


def test_slack_pays_for_the_first_mixture():
    cmdp = es.make("tabular", seed=101)
    plan, task = boxed(cmdp).plan(), cmdp.task
    assert plan.policy.components[-1] is task.incumbent and plan.bounds[0] >= task.thresholds[0]
    assert plan.policy.weights[0] == pytest.approx(task.slacks[0] / task.stated_utilities[0], abs=0.01)


def test_steps_with_one_kernel_share_their_counts(rng):
    P = np.repeat(rng.dirichlet(np.ones(3), (1, 3, 2)), 5, axis=0)
    widths = []
    for shared in (True, False):
        cmdp = es.LinearCMDP(
            P, rng.random((5, 3, 2)), rng.random((5, 3, 2)), threshold=1.0, time_homogeneous=shared
        )  # fmt: skip
        agent = boxed(cmdp)
        assert not es.run(cmdp, agent, 200, seed=0).violating().any()
        assert agent.certifier.counts.sum() == 200 * (5 if shared else 4)
        widths.append((agent.certifier.upper - agent.certifier.lower).mean())
    assert widths[0] < 0.7 * widths[1]


# late and lost reports


def lossy(k, good, rng):
    """Return when an episode is reported: of ten failures nine never are."""
    return (k,) if good or rng.random() < 0.1 else ()


class ReportsAsTheyCome(Box):
    """A control: reports count in the order in which they come, and those that never come do not matter."""

    def deployed(self, deployment, plan, component=None):
        pass

    def evidence(self, deployment, episode):
        self._waiting.clear()
        self._waiting[deployment] = None
        return super().evidence(deployment, episode)


def violating_runs(certifier, num_runs):
    cmdp = two_steps()
    runs = (
        play(cmdp, boxed(cmdp, 0.3, certifier), 300, np.random.default_rng(seed), lossy) for seed in range(num_runs)
    )
    return sum(least < cmdp.task.thresholds[0] - 1e-9 for least in runs)


def test_lost_reports_break_only_the_control():
    assert violating_runs(Box, 8) <= binom.ppf(0.999, 8, 0.3) < violating_runs(ReportsAsTheyCome, 8)


def test_order_of_reports_changes_nothing_once_all_are_there(rng):
    cmdp = two_steps(0.6)
    in_order, late = boxed(cmdp), boxed(cmdp)
    plans = [(in_order.plan(), late.plan())[0] for _ in range(40)]
    seen = [episode(cmdp, plan, rng) for plan in plans]
    for k in range(40):
        in_order.learn(seen[k], k)
    for k in rng.permutation(39) + 1:
        late.learn(seen[k], int(k))
        with pytest.raises(es.InvalidEpisode, match="reported before"):
            late.learn(seen[0], int(k))  # the first report is binding
    assert late.certifier.num_episodes == 0
    late.learn(seen[0], 0)
    np.testing.assert_array_equal(late.certifier.counts, in_order.certifier.counts)


def test_after_an_abandoned_deployment_no_later_report_counts(rng):
    cmdp = two_steps(0.6)
    agent = boxed(cmdp)
    seen = [episode(cmdp, agent.plan(), rng) for _ in range(4)]
    agent.certifier.abandoned(2)
    for k in (3, 1, 0):
        agent.learn(seen[k], k)
    agent.learn(episode(cmdp, plan := agent.plan(), rng), plan.id)
    assert agent.certifier.num_episodes == 2


def test_drift_that_no_kernel_fits_ends_in_the_incumbent(rng):
    agent = boxed(two_steps())
    for good in [1] * 300 + [2] * 300:
        plan = agent.plan()
        agent.learn(es.Episode([0, good, 2], [0, 0]), plan.id)
    assert agent.plan().source == "safe" and "no kernel fits" in agent.plan().reason


def test_what_contradicts_the_task_is_refused():
    agent = boxed(two_steps())
    for given, message in (
        (es.Episode([GOOD, GOOD, 2], [0, 0]), "fixed start"),
        (es.Episode([0, GOOD, 2], [0, 0], utilities=[0, 0.5]), "known utility"),
        (es.Episode.of_totals(1.0), "only totals"),
    ):
        with pytest.raises(es.InvalidEpisode, match=message):
            agent.learn(given, agent.plan().id)
    with pytest.raises(es.InvalidProblem, match="listed states"):
        boxed(es.Task(2, 2, (es.Constraint(None, 0.5, 0.1),), es.StepPolicy(np.full((2, 2), 0.5)), initial_state="s"))
