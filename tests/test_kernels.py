"""Every compiled formula of docs/paper-map.md can be called from Python, and is what a naive computation gives."""

import importlib
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import episafe as es
import oracles
from episafe.kernels import (
    arm_mixtures,
    backward_pass,
    bandit_decision,
    bandit_regression,
    confidence_sequence,
    decision,
    ellipsoid,
    extended_value_iteration,
    mixing,
    mixture_choice,
    simulation,
    transition_box,
    wealth,
)
from episafe.kernels.bandit_regression import BanditRadius
from episafe.kernels.compilation import ByModel, Formula
from episafe.kernels.model_arrays import Scales
from test_paper_map import ROWS

CONSTANTS = es.Constants(0.3, 0.2, 0.1, 0.2, kappa=0.1, lam_max=50.0, num_halvings=20, ridge=0.5)
SCALES = Scales(C_r=0.3, utility_bonus=-0.2, C_dagger=0.1, B_dagger=0.2, kappa=0.1)
A, D, N = 3, 4, 16  # actions, features, states: whole lanes
THRESHOLD = 1.0


def _rng():
    return np.random.default_rng(0)


def _gram():
    x = _rng().random((20, D))
    return 0.5 * np.eye(D) + x.T @ x


def feature_bonus():
    phi, gram, bonus = _rng().random((1, A, D, N)), _gram(), np.zeros((1, A, N))
    backward_pass.feature_bonus(0, N, 0, phi, np.linalg.inv(gram)[None], SCALES, bonus)
    np.testing.assert_allclose(bonus[0].T, oracles.elliptical_bonus(np.moveaxis(phi[0], -1, 0), gram), atol=1e-12)


def regress():
    rng, gram_inv = _rng(), np.linalg.inv(_gram())[None]
    moments, V, weights = rng.random((1, D, N)), rng.random((2, 3, N)), np.zeros((1, 3, D))
    backward_pass.regress(0, N, moments, gram_inv, V, np.zeros((3, D)), weights)
    np.testing.assert_allclose(weights[0], V[1] @ moments[0].T @ gram_inv[0], atol=1e-12)


def softmax_step():
    """Nothing is left to come after two more steps: Q from r, u, β and P̂V, then π and its three values."""
    rng, left, lam = _rng(), 2, 3.0
    r, u, beta, PV = rng.random((A, N)), rng.random((A, N)), rng.random((A, N)), rng.random((3, A, N))
    Q, norm, values = np.concatenate([PV, np.zeros((1, A, N))]), np.zeros(N), np.zeros((1, 3, N))
    terms, room = (r[None], u[None], beta[None]), (Q, norm, values)
    backward_pass.softmax_step(0, N, left, terms, SCALES, lam, room)
    Q_r = r + np.clip(0.3 * beta + PV[0], 0, left * (1 + 0.1 * math.log(A)))
    Q_dagger = 0.2 * beta + np.clip(0.1 * beta + PV[1], 0, 0.2 * left)
    Q_u = u + np.clip(-0.2 * beta + PV[2], 0, left)
    logits = (Q_dagger + Q_r + lam * Q_u) / 0.1
    ln_pi = np.array([oracles.log_softmax(column) for column in logits.T]).T
    pi = np.exp(ln_pi)
    np.testing.assert_allclose(Q[3] * norm, pi, atol=1e-12)
    V = [(pi * Q).sum(axis=0) for Q in (Q_r - 0.1 * ln_pi, Q_dagger, Q_u)]
    np.testing.assert_allclose(values[0], V, atol=1e-12)


def _learned(d):
    """A planner that has seen thirty episodes, and what the slow twin needs to know of them."""
    rng = _rng()
    made = oracles.random_cmdp(rng, S=5, A=A, H=3, d=d)
    phi = None if d is None else made["phi"]
    cmdp = es.LinearCMDP(made["P"], made["reward"], made["utility"], phi, made["initial_state"], threshold=THRESHOLD)
    planner, uniform = es.OPSE(cmdp.task, CONSTANTS).planner, np.full((3, 5, A), 1 / A)
    episodes = oracles.random_episodes(rng, made, uniform, 30)
    for states, actions in episodes:
        planner.observe(states, actions)
    return planner, (made["phi"], made["reward"], made["utility"], episodes, CONSTANTS), made["initial_state"]


def evaluate():
    for d in (None, D):
        planner, known, start = _learned(d)
        held = planner.regression
        decision.refresh(held.model, held.support.size, held.work, planner.scales)
        held.work.lams[:] = 7.0
        decision.evaluate(held.model, held.support, held.work, planner.scales)
        np.testing.assert_allclose(held.work.bounds, oracles.composite_softmax(*known, 7.0, start).V_u, atol=1e-9)


def decide():
    for d in (None, D):
        planner, known, start = _learned(d)
        held = planner.regression
        found = decision.decide(held.model, held.support, held.work, planner.scales, planner.search)
        naive = oracles.opse_plan(*known, THRESHOLD, start, np.zeros(0))
        assert ("safe", "zero", "search")[found[0]] == naive.source
        np.testing.assert_allclose(found[1:], (naive.lam, naive.utility_bound), rtol=1e-9)


def admits():
    assert mixing.admits(0.5, 0.5) and not mixing.admits(0.5 - 1e-16, 0.5) and not mixing.admits(math.nan, 0.5)


def lower_bound():
    """The largest m at which some bet's quadratic in 1/m reaches the term, found by looking at many m."""
    sums, term = np.array([[60.0, 100.0, 40.0, 58.0, 97.0, 0.0]]), 4.0
    QX, Q, QQXX, QQX, QQ, _ = sums[0]
    x = 1 / np.linspace(1e-4, 1, 200_001)[:, None]
    bet, cost = confidence_sequence.BETS, confidence_sequence.COSTS
    refuted = -cost * QQXX * x**2 + (bet * QX + 2 * cost * QQX) * x - (bet * Q + cost * QQ) >= term
    found = confidence_sequence.lower_bound(sums, 0, term)
    assert 0 < found == pytest.approx(1 / x[refuted.any(axis=1)].min(), abs=1e-5)


def credit():
    means = np.array([0.2, 0.4, 0.8])
    trials = wealth.blank_trials(means, 2)
    wealth.begin_row(trials, 1, math.log(len(wealth.BETS) / 0.5), 0.0)
    for q, X, R in ((0.5, 2.0, 3.0), (1.0, 1.0, 0.0)):
        wealth.credit(trials, 1, q, X, R)
    made = np.prod([1 + wealth.BETS[:, None] * q * (X / means - 1) for q, X in ((0.5, 2.0), (1.0, 1.0))], axis=0)
    assert trials.lower[1] == means[made.mean(axis=0) >= 2].max() and list(trials.rewards[1]) == [1.5, 1.5]


def raise_by_prefixes():
    """What is not reported after a prefix costs that prefix nothing; before it, it does."""
    means, log_term = np.array([0.2, 0.4, 0.8]), math.log(len(wealth.BETS) / 0.5)
    for waiting, lower in ((2, 0.4), (0, 0.0)):
        trials = wealth.blank_trials(means, 2)
        wealth.begin_row(trials, 1, log_term, 0.0)
        utilities = np.ones(3)
        utilities[waiting] = 0.0
        wealth.raise_by_prefixes(trials, 1, np.ones(3), utilities, np.ones(3, dtype=bool))
        factors = 1 + wealth.BETS[:, None] * (utilities[:, None, None] / means - 1)
        assert trials.lower[1] == means[(factors.cumprod(axis=0).mean(axis=1) >= 2).any(axis=0)].max(initial=0) >= lower


def box_interval():
    """At the ends the wealth against p, B(k + ½, n − k + ½)/π over p^k (1 − p)^(n−k), is 1/δ'."""
    low, high = transition_box.interval(3.0, 10.0, 4.0)
    for p in (low, high):
        wealth_then = math.lgamma(3.5) + math.lgamma(7.5) - math.lgamma(11) - math.log(math.pi)
        assert wealth_then - 3 * math.log(p) - 7 * math.log1p(-p) == pytest.approx(4.0, abs=1e-6)


def box_tighten():
    counts, lower, upper = np.zeros((1, 2, 1, 2)), np.zeros((1, 2, 1, 2)), np.ones((1, 2, 1, 2))
    counts[0, 0, 0] = 3.0, 7.0
    transition_box.tighten(counts, 4.0, lower, upper)
    found = lower[0, 0, 0, 0], upper[0, 0, 0, 0]
    assert found == transition_box.interval(3.0, 10.0, 4.0) and lower[0, 1].max() == 0 and upper[0, 1].min() == 1


def box_policy_bounds():
    """One step to go: the reward is the largest, the utility the least that a row of the box allows."""
    lower, upper = np.array([[[[0.2, 0.1]], [[0.0, 0.0]]]]), np.array([[[[0.9, 0.8]], [[1.0, 1.0]]]])
    signals = np.zeros((2, 2, 2, 1))
    signals[:, 1, 1] = 1.0  # earned in state 1 at the last step
    best, worst = transition_box.policy_bounds(
        signals, np.ones((2, 2, 1)), transition_box.TransitionBox(lower, upper, 1 - lower.sum(axis=-1))
    )
    assert best[0] == pytest.approx(0.8) and worst[0] == pytest.approx(0.1)


def best_mixture():
    trials, rng = wealth.blank_trials(np.ones(1), 4), _rng()
    trials.lower[:], trials.guess[:], trials.in_use[:], trials.newest[0] = [1.2, 0.9, 0.4, 1.05], rng.random(4), 1, 2
    score = [float(mixture_choice.score(trials, i)) for i in range(4)]
    value = max(
        p * score[i] + (1 - p) * score[j]
        for i, j in itertools.product(range(4), repeat=2)
        for p in np.linspace(0, 1, 20_001)
        if p * trials.lower[i] + (1 - p) * trials.lower[j] >= THRESHOLD
    )
    i, j, p, bound, found = mixture_choice.best_mixture(trials, THRESHOLD, 0.0)
    assert found == pytest.approx(value, abs=1e-4) and bound >= THRESHOLD
    assert bound == p * trials.lower[i] + (1 - p) * trials.lower[j]


def _best_pair(f, g, threshold):
    """The best mixture of two arms, by trying all of them."""
    found = -math.inf
    for i, j in itertools.product(range(len(f)), repeat=2):
        if g[i] >= threshold:
            found = max(found, f[i])
        elif g[j] >= threshold:
            share = (threshold - g[i]) / (g[j] - g[i])
            found = max(found, (1 - share) * f[i] + share * f[j])
    return found


def envelope():
    f, g = _rng().random((2, 9))
    low, high, share, lam = arm_mixtures.envelope(f, g, 0.8, np.empty(9, dtype=np.int64))
    assert mixing.mixed(g[low], g[high], share) == pytest.approx(0.8) and lam > 0
    assert mixing.mixed(f[low], f[high], share) == pytest.approx(_best_pair(f, g, 0.8))


def chords():
    """Without bonuses the best point of the unit ball with y₂ ≥ 0.6 for y₁ is (0.8, 0.6)."""
    atoms, (p, q) = np.empty((2, 2)), np.eye(2)
    share, lam, gap, feasible = ellipsoid.chords(p, q, np.ones(2), 0.0, 0.0, 0.6, atoms)
    np.testing.assert_allclose((1 - share) * atoms[0] + share * atoms[1], [0.8, 0.6], atol=1e-6)
    assert feasible and gap < 1e-9 and lam == pytest.approx(0.75, abs=1e-5)


def bandit_decide():
    arms = _rng().random((6, 2))
    model, room, policy = bandit_regression.blank(2), bandit_decision.room(6), np.empty(6)
    for arm in arms:
        for row in np.repeat(arm[None], 50, axis=0):
            bandit_regression.absorb(model, row[None], 0, row[None] @ [[1.0, 0.1], [0.2, 1.0]], 0)
    safe, C = np.eye(6)[np.argmax(arms[:, 1])], 0.05
    rule = bandit_decision.Rule(np.array([0.5]), norm_bound=1.0, slack=0.2, trigger=True)
    known = (arms, 0, safe), model, rule, BanditRadius(C, 0.0, 0.0, 0.0, 0.0, math.inf)
    source, _, reason = bandit_decision.decide(*known, room, policy, bound := np.empty(1))
    beta = np.sqrt(np.einsum("ni,ij,nj->n", arms, np.linalg.inv(model.gram), arms))
    theta = np.linalg.solve(model.gram, model.sums.T)
    f, g = arms @ theta[:, 0] + (1 + 2 / 0.2) * C * beta, arms @ theta[:, 1] - C * beta
    assert (source, reason) == (bandit_decision.SEARCH, bandit_decision.ADMITTED)
    assert (
        policy @ f == pytest.approx(_best_pair(f, g, 0.5)) and bound[0] == pytest.approx(policy @ g) and bound[0] >= 0.5
    )


def slack_of():
    told, estimated = (bandit_decision.Rule(np.array([0.5, 0.1]), 1.0, slack) for slack in (0.2, math.nan))
    assert bandit_decision.slack_of(told, np.array([0.6, 0.6])) == 0.2
    assert bandit_decision.slack_of(estimated, np.array([0.6, 0.6])) == pytest.approx(0.1)
    assert bandit_decision.slack_of(estimated, np.array([0.6, 0.05])) == pytest.approx(-0.05)


def confidence_box():
    counts = _rng().integers(0, 9, size=(2, 3, A, 3)).astype(float)
    counts[0, 0, 0] = 0
    n = counts.sum(axis=-1, keepdims=True)
    p_hat = counts / np.maximum(n, 1)
    gamma = np.minimum(0.7, 0.5 * np.sqrt(p_hat * (1 - p_hat) / np.maximum(n, 1)) + 0.1 / np.maximum(n, 1))
    lower, upper, bonus = extended_value_iteration.confidence_box(counts, 0.5, 0.1, 0.7)
    np.testing.assert_allclose(lower, np.where(n > 0, np.maximum(p_hat - gamma, 0), 0))
    np.testing.assert_allclose(upper, np.where(n > 0, np.minimum(p_hat + gamma, 1), 1))
    np.testing.assert_allclose(bonus, gamma.sum(axis=-1))


def policy_values():
    """By hand: V_h(s) = Σ_a π(a|s) (g(s,a) + Σ_t P(t|s,a) V_{h+1}(t))."""
    cmdp = es.make("tabular", seed=4)
    task, table = cmdp.task, _rng().dirichlet(np.ones(cmdp.task.num_actions), size=cmdp.task.reward.shape[:2])
    values = []
    for signal in (task.reward, task.utility):
        V = np.zeros(task.num_states)
        for h in reversed(range(task.horizon)):
            V = (table[h] * (signal[h] + cmdp.P[h] @ V)).sum(axis=-1)
        values.append(V[task.initial_state])
    found = simulation.policy_values(cmdp.P, task.reward, task.utility, table, task.initial_state)
    np.testing.assert_allclose(found, values, rtol=0, atol=1e-12)


CALLS = {
    "arm_mixtures.envelope": envelope,
    "backward_pass.feature_bonus": feature_bonus,
    "backward_pass.regress": regress,
    "backward_pass.softmax_step": softmax_step,
    "bandit_decision.decide": bandit_decide,
    "bandit_decision.slack_of": slack_of,
    "confidence_sequence.lower_bound": lower_bound,
    "decision.decide": decide,
    "decision.evaluate": evaluate,
    "ellipsoid.chords": chords,
    "extended_value_iteration.confidence_box": confidence_box,
    "mixing.admits": admits,
    "mixture_choice.best_mixture": best_mixture,
    "policy_values.policy_values": policy_values,
    "transition_box.interval": box_interval,
    "transition_box.policy_bounds": box_policy_bounds,
    "transition_box.tighten": box_tighten,
    "wealth.credit": credit,
    "wealth.raise_by_prefixes": raise_by_prefixes,
}
NAMES = sorted({name.removeprefix("episafe.kernels.") for name, _, _ in ROWS if name.startswith("episafe.kernels.")})


@pytest.mark.parametrize("name", NAMES)
def test_what_the_paper_map_names_can_be_called_and_is_right(name):
    CALLS[name]()


def test_arrays_without_room_are_refused_and_not_written_beyond():
    with pytest.raises(IndexError):
        backward_pass.clear(np.ones((3, A, 5)), 5)


def test_eight_numbers_side_by_side_are_a_tuple_for_python():
    V, rows = np.arange(96.0).reshape(2, 2, 3, 8), tuple(map(np.array, ([[[0, 2]]], [[0, 1]], [[0.25, 0.5]])))
    found, mean = backward_pass.average(0, 0, 0, rows, V, 0.0), 0.25 * V[1, 0] + 0.5 * V[1, 1]
    np.testing.assert_array_equal(found, mean)
    *_, missing_at_8 = backward_pass.average(0, 0, 0, rows, V, 8.0)
    np.testing.assert_allclose(missing_at_8, mean[2] + 0.25 * 8.0)


def test_a_nudge_raises_a_share_until_the_check_passes_and_no_further():
    for share in (0.0, 0.3, 0.7, 1.0):
        found = mixing.nudged(0.0, 1.0, share, share)
        assert share <= found <= share + 4 * mixing.ROUNDING and mixing.mixed(0.0, 1.0, found) >= share
    assert mixing.nudged_until(lambda share: share >= 0.75, 0.5) >= 0.75
    assert math.isnan(mixing.nudged_until(lambda share: False, 0.5))


def test_every_kernel_has_a_docstring_and_at_most_eight_arguments():
    for path in Path(mixing.__file__).parent.glob("[a-z]*.py"):
        module = importlib.import_module(f"episafe.kernels.{path.stem}")
        for name, made in vars(module).items():
            function = getattr(made, "__wrapped__" if isinstance(made, Formula | ByModel) else "py_func", None)
            if function is not None and function.__module__ == module.__name__:
                assert function.__code__.co_argcount <= 8, (path.stem, name)
                assert name.startswith("_") or function.__doc__, (path.stem, name)


def test_shares_are_bayes_rule_and_long_episodes_do_not_vanish():
    """q_i = w_i Π_h π_i(a_h|s_h) / Σ_j w_j Π_h π_j(a_h|s_h), here by logarithms; 3,000 steps of it are below 1e-308."""
    acted, weights = 0.2 + 0.1 * _rng().random((4, 3_000, 3)), np.array([0.5, 0.3, 0.2])
    shares = np.tile(weights, (4, 1))
    assert wealth.share_out(acted, 3, shares)
    logs = np.log(weights) + np.log(acted).sum(axis=1)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    np.testing.assert_allclose(shares, likely / likely.sum(axis=1, keepdims=True), rtol=1e-9)
    acted[2, 7] = 0.0
    assert not wealth.share_out(acted, 3, np.tile(weights, (4, 1)))
    alone = np.array([[1.0, 0.3, 0.2]])
    assert wealth.share_out(acted[:1], 1, alone) and alone[0].tolist() == [1.0, 0.3, 0.2]  # the others have no part
