"""The paper's lemmas on data that reach the regime they speak of: up to 1e14 visits, put into the regression at once.

Each test has its negative control inside: the same statement, of something broken, that must fail.
"""

import math

import numpy as np
import pytest

import episafe as es
import oracles
from episafe.kernels.model_arrays import DenseModel
from episafe.learning import theorem_bounds
from episafe.learning.planner import SoftmaxPlanner

SEEDS = range(12)
ROUNDING = 1e-7  # of values up to H from moments of up to 1e14 visits, whose sums carry 1e-16 of themselves


def problem(seed, d=None, S=4, A=3, H=3, scale=0.6):
    rng = np.random.default_rng(seed)
    raw = oracles.random_cmdp(rng, S, A, H, d)
    phi = None if d is None else raw["phi"]
    free = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], phi, raw["initial_state"], threshold=-1)
    threshold = scale * free.evaluate(free.task.safe_policy)[1]
    cmdp = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], phi, raw["initial_state"], threshold=threshold)
    return rng, cmdp


def visits(rng, cmdp, low, high):
    """Visits (H, S, A), each 10^x with x uniform."""
    return np.floor(10 ** rng.uniform(low, high, cmdp.task.reward.shape)).astype(np.int64)


def drawn(rng, cmdp, n):
    """Transition counts (H, S, A, S) of n (H, S, A) visits."""
    return np.array([rng.multinomial(count, p) for count, p in zip(n.ravel(), cmdp.P.reshape(n.size, -1), strict=True)
                     ]).reshape(cmdp.P.shape)  # fmt: skip


def informed(cmdp, constants, counts):
    """A planner that has seen these transition counts (H, S, A, S), without living through them."""
    planner = SoftmaxPlanner(cmdp.task, constants, pessimistic=True)
    known, (H, S, A, _) = planner.regression, counts.shape
    for _ in range(2):  # room for all S·A·S transitions
        known.enlarge()
    for s in range(S):
        known.slots(np.full(H + 1, s))
    slot = known.slot_of
    for h, s, a in np.ndindex(H, S, A):
        if isinstance(known.model, DenseModel):
            phi = cmdp.task.features(s)[a]
            known.model.gram[h] += counts[h, s, a].sum() * np.outer(phi, phi)
        else:
            known.model.visits[h, a, slot[h, s]] = counts[h, s, a].sum()
        for s_next in range(S) if h < H - 1 else ():
            _add(known.model, h, slot[h, s], a, slot[h + 1, s_next], counts[h, s, a, s_next], cmdp.task.features(s)[a])
    known.refactor()
    planner.decide()
    return planner


def _add(model, h, i, a, j, times, phi):
    if isinstance(model, DenseModel):
        model.moments[h, :, j] += times * phi
        return
    t = model.num_transitions[h]
    model.num_transitions[h] += 1
    model.target[h, t], model.times[h, t] = j, times
    model.following[h, t], model.first[h, a, i] = model.first[h, a, i], t


def bonuses(cmdp, planner):
    """β (H, S, A)."""
    known, out = planner.regression, np.empty(cmdp.task.reward.shape)
    for h, s in np.ndindex(out.shape[:2]):
        out[h, s] = known.work.bonus[h, :, known.slot_of[h, s]]
    return out


def value(cmdp, policy, g):
    """V^{π,g}(s₁), exact, of any g (H, S, A)."""
    V = np.zeros(cmdp.P.shape[1])
    for h in reversed(range(len(g))):
        V = (policy[h] * (g[h] + cmdp.P[h] @ V)).sum(axis=-1)
    return float(V[cmdp.task.initial_state])


def in_sandwich(cmdp, planner, C_u, lam):
    """Whether V^{u−2C_uβ} ≤ V̲ᵘ ≤ Vᵘ for π^λ."""
    bound = planner.utility_bound(lam)
    policy = planner.policy(lam).table()
    lower = value(cmdp, policy, cmdp.task.utility - 2 * C_u * bonuses(cmdp, planner))
    return lower - ROUNDING <= bound <= value(cmdp, policy, cmdp.task.utility) + ROUNDING


@pytest.mark.parametrize("d", [None, 3])
def test_the_sandwich_covers_with_the_theorems_constants(d):
    """Lemma "Confidence bounds": all of 12 problems × 6 multipliers, from 1e6 to 1e14 visits, most bounds above 0.

    Control: C_u = 0.02 and 30 to 1000 visits must leave the sandwich often. Seen to fail with +C_u for −C_u, with a
    ten-thousandth of C_u, and without the clip of Q̲ᵘ at 0.
    """
    covered, informative, control = [], [], []
    for seed in SEEDS:
        rng, cmdp = problem(seed, d)
        proved = es.Constants.theory(cmdp.task, num_episodes=10**6)
        small = es.Constants(0.02, 0.02, 0.02, 0.02, kappa=0.05, lam_max=300, num_halvings=30)
        for constants, span, kept in ((proved, (6, 14), covered), (small, (1.5, 3), control)):
            planner = informed(cmdp, constants, drawn(rng, cmdp, visits(rng, cmdp, *span)))
            for lam in (0.0, *np.geomspace(1e-3, constants.lam_max, 5)):
                kept.append(in_sandwich(cmdp, planner, constants.C_u, lam))
                if constants is proved:
                    informative.append(planner.utility_bound(lam) > cmdp.task.utility.min())
    assert np.mean(covered) == 1.0
    assert np.mean(informative) > 0.9
    assert np.mean(control) < 0.8


@pytest.mark.parametrize(("d", "C_r", "B_dagger", "kappa"), [(None, 2.0, 1.0, 0.05), (3, 3.0, 0.0, 0.1)])
def test_the_utility_grows_with_lambda_on_an_exact_model_and_not_on_any(d, C_r, B_dagger, kappa):
    """Lemma "Softmax value monotonicity", at 1e14 visits in exact proportion.

    Control: with few visits and large bonuses the clips bind, values are those of no kernel, and some problem drops.

    Seen to fail with −λ for λ in the exponent, and (d = 3) with κ ln π left out of V̄ʳ.
    """
    quiet = es.Constants(0, 0, 0, 0, kappa=0.1, lam_max=300, num_halvings=40)
    drops, control = [], []
    loud = es.Constants(C_r, 1, C_r, B_dagger, kappa=kappa, lam_max=300, num_halvings=40)
    for seed in range(24):
        rng, cmdp = problem(seed, d)
        lams = np.linspace(0, 20, 60)
        exact = informed(cmdp, quiet, 1e14 * cmdp.P)
        drops.append(np.diff([exact.utility_bound(lam) for lam in lams]).min())
        noisy = informed(cmdp, loud, drawn(rng, cmdp, visits(rng, cmdp, 0, 1)))
        control.append(np.diff([noisy.utility_bound(lam) for lam in lams]).min())
    assert min(drops) > -ROUNDING
    assert min(control) < -100 * ROUNDING


def confident_counts(rng, cmdp, constants, share):
    """Counts with V^{π_sf,β} just below share·ξ/C_u: the incumbent's pairs are known alike, all others hardly."""
    task, n = cmdp.task, visits(rng, cmdp, 0, 2)
    table, target = task.safe_policy.table(), share * task.slack / constants.C_u
    known = np.where(table > 0, math.ceil((task.horizon / target) ** 2), n)  # β ≤ 1/√n, so V^{π_sf,β} ≤ H/√n
    return drawn(rng, cmdp, known)


def feasible_at_lam_max(cmdp, constants, counts):
    return informed(cmdp, constants, counts).utility_bound(constants.lam_max) >= cmdp.task.threshold


@pytest.mark.parametrize("d", [None, 3])
def test_a_confident_incumbent_makes_the_check_pass_at_lam_max(d):
    """Lemmas "Existence of feasible λ" and "Implicit trigger": V^{π_sf,β} ≤ ξ/(4C_u) gives V̲ᵘ(π^{C_λ}) ≥ b.

    Controls: C_λ a millionth of the theorem's, and an incumbent ten thousand times less well known, must fail on some.
    Seen to fail with C_λ = 8H_κ²/ξ, with +C_u for −C_u, and with −λ for λ.
    """
    passed, small_lam, unknown = [], [], []
    for seed in SEEDS:
        rng, cmdp = problem(seed, d)
        proved = es.Constants.theory(cmdp.task, num_episodes=10**6)
        counts = confident_counts(rng, cmdp, proved, 1 / 4)
        passed.append(feasible_at_lam_max(cmdp, proved, counts))
        small_lam.append(feasible_at_lam_max(cmdp, proved.replace(lam_max=1e-6 * proved.lam_max), counts))
        unknown.append(feasible_at_lam_max(cmdp, proved, confident_counts(rng, cmdp, proved, 100)))
    assert all(passed)
    assert not all(small_lam)
    assert not any(unknown)


@pytest.mark.parametrize("B_over", [2.0, 4.0])
def test_every_episode_is_optimistic_once_the_incumbent_is_half_known(B_over):
    """docs/theory.md, "A proof without U": V^{π_sf,β} ≤ ξ/(2C_u) and B_† ≥ 2C_uH/ξ give

        V^{π*,r} ≤ V̄ʳ[κ] + V̄† + λ̄(V̲ᵘ − b)

    also where V^{π_sf,β} > ξ/(4C_u), which the paper's set U leaves out. Control: without bonuses it must fail.
    Seen to fail with β² for β, with −λ for λ, and with C_λ = 8H_κ²/ξ; not without B_† alone: C_r makes up for it here.
    """
    gaps, control, in_U = [], [], []
    for seed in range(20):
        rng, cmdp = problem(seed)
        task = cmdp.task
        proved = es.Constants.theory(task, num_episodes=10**6)
        half = proved.replace(B_dagger=B_over * proved.C_u * task.horizon / task.slack)
        counts = confident_counts(rng, cmdp, half, 1 / 2)
        for constants, kept in ((half, gaps), (half.replace(C_r=0, B_dagger=0, C_dagger=0), control)):
            planner = informed(cmdp, constants, counts)
            decision = planner.decide()
            V_r, V_dagger, V_u = planner.regression.start_values
            kept.append(V_r + V_dagger + decision.lam * (V_u - task.threshold) - cmdp.optimal_value())
        x = value(cmdp, task.safe_policy.table(), bonuses(cmdp, planner))
        in_U.append(x > task.slack / (4 * half.C_u))
    gaps, control = np.array(gaps), np.array(control)
    decided = ~np.isnan(gaps)  # NaN: the incumbent was deployed
    assert decided.sum() >= 10
    assert all(in_U)
    assert (gaps[decided] >= -ROUNDING).all()
    assert (control < -1e-3).any()


def test_values_move_with_lambda_by_no_more_than_the_sensitivity():
    """Lemma "λ-sensitivity", with the X and Y of docs/theory.md, at H = 1 and 2 and one visit a pair.

    Control: the same bound without its 1/κ must fail.
    """
    kept, control = [], []
    for seed in range(16):
        rng, cmdp = problem(seed, H=1 + seed % 2)
        constants = es.Constants(0.1, 0.05, 0.1, 0.1, kappa=0.002, lam_max=3, num_halvings=30)
        planner = informed(cmdp, constants, drawn(rng, cmdp, np.full(cmdp.task.reward.shape, 1)))
        H, A, K = cmdp.task.horizon, 3, 12
        H_kappa = H * (1 + constants.kappa * math.log(A))
        for scale, found in ((constants.kappa, kept), (1.0, control)):
            Y = 2 + 8 / scale * (2 * constants.B_dagger * H + 2 * H_kappa + 3 * H + H)
            X = K * (1 + 4 * Y) if scale < 1 else 1.0
            lams = np.linspace(0, 3, 3001)
            moved = np.abs(np.diff([planner.utility_bound(lam) for lam in lams])).max()
            found.append(moved <= X**H * H**2 * Y * 1e-3 + 1e-12)
    assert all(kept)
    assert not all(control)


def test_bonuses_of_the_deployed_policies_sum_to_no_more_than_the_potential():
    """Lemma "Bonus summation bound": Σ V^{π,β}² over a run, exact, below 4H²d ln(1+K/d) + 4H² ln(2KH/δ).

    Control: bonuses that never shrink are above it. Seen to fail with a hundredth of the bound.
    """
    _, cmdp = problem(3, d=3)
    task, K = cmdp.task, 600
    agent = es.OPSE(task, es.Constants(1, 1, 1, 1, kappa=0.01, lam_max=300, num_halvings=30))
    rng, squares = np.random.default_rng(0), []
    first = np.linalg.norm(task.phi, axis=-1)[None].repeat(task.horizon, axis=0)
    for _ in range(K):
        policy = agent.plan().policy.table()
        gram_inv = agent.planner.regression.model.gram_inv
        beta = np.sqrt(np.einsum("sad,hde,sae->hsa", task.phi, gram_inv, task.phi))
        squares.append((value(cmdp, policy, beta) ** 2, value(cmdp, policy, first) ** 2))
        states, actions = [task.initial_state], []
        for h in range(task.horizon):
            actions.append(rng.choice(task.num_actions, p=policy[h, states[-1]]))
            states.append(rng.choice(task.num_states, p=cmdp.P[h, states[-1], actions[-1]]))
        agent.learn(es.Episode(states, actions))
    total, control = np.sum(squares, axis=0)
    limit = theorem_bounds.squared_bonus_sum(task, K, delta=0.05)
    assert 0.02 * limit < total <= limit
    assert control > limit


def test_the_incumbent_is_deployed_no_more_often_than_its_bound():
    """Theorem "Logarithmic |U|", for deployments: a run longer than the bound.

    Control: λ = 0 alone never passes. Seen to fail with a bound of a 6400th.
    """
    H, S, A = 2, 2, 2
    P = np.zeros((H, S, A, S))
    P[..., 0], P[..., 1] = 0.8, 0.2
    reward, utility = np.zeros((H, S, A)), np.zeros((H, S, A))
    reward[:, :, 0], utility[:, :, 1] = 1.0, 1.0
    cmdp = es.LinearCMDP(P, reward, utility, threshold=1.4)
    constants = es.Constants(1, 1, 1, 1, kappa=0.01, lam_max=300, num_halvings=30)
    limit = theorem_bounds.incumbent_deployments(cmdp.task, constants.C_u)
    K = int(2 * limit)
    record = es.run(cmdp, es.OPSE(cmdp.task, constants, es.Doubling(0.1)), num_episodes=K)
    assert 0 < record.safe_deployments()[-1] <= limit
    blind = es.run(cmdp, es.OPSE(cmdp.task, constants.replace(lam_max=0), es.Doubling(0.1)), num_episodes=K)
    assert blind.safe_deployments()[-1] > limit
