"""Problems of other papers: small ones with one kernel for all steps, and two kinds of random tables.

Options that several have: `num_states`, `num_actions` and `horizon` are S, A and H. `limit` is the cost of an episode
that is allowed on average, None for H/2; b = H − limit. `slack` is that of the incumbent, which is the best policy of
utility b + slack.
"""

import math
from itertools import product

import numpy as np

from episafe.core.checks import as_count
from episafe.core.types import Array
from episafe.envs.common import check_range, cost_limited, stationary
from episafe.envs.paper import FAST, MAX_DRAWS, buffer_kernel, draw_feasible
from episafe.problems.linear import LinearCMDP, Tables

STAY, MOVE = 0, 1
LEFT, RIGHT = 0, 1
WAIT, SEND = 0, 1
DEAR = slice(2, 6)  # steps 3 to 6, counted from 1


def media(
    rng: np.random.Generator,
    *,
    num_states: int = 10,
    horizon: int = 10,
    fast_rate: float = 0.9,
    slow_rate: float = 0.1,
    departure_rate: float = 0.8,
    limit: float | None = None,
    slack: float | None = None,
) -> LinearCMDP:
    """A media buffer that starts empty; a = 0 is fast service. Reward 1 − [empty], utility 1 − [fast].

    From Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "DOPE" (NeurIPS 2022), by their released code. They
    count costs: the optimum 6.7467 of 10 steps is a reward of 3.2533, and at most 5 fast steps are b = 5. The
    rates are the probabilities of an arrival and a departure per step. A slack of None is 0.4 H, as published.
    """
    for name, rate in (("fast_rate", fast_rate), ("slow_rate", slow_rate), ("departure_rate", departure_rate)):
        check_range(name, rate, 0, 1)
    kernel = np.stack([buffer_kernel(rate, departure_rate, num_states - 1) for rate in (fast_rate, slow_rate)], axis=1)
    reward, utility = np.ones((2, num_states, 2))
    reward[0], utility[:, FAST] = 0.0, 0.0
    return cost_limited((kernel, reward, utility), horizon, limit, slack)


def ring(
    rng: np.random.Generator,
    *,
    num_states: int = 3,
    horizon: int = 6,
    limit: float | None = None,
    slack: float | None = None,
) -> LinearCMDP:
    """States 0, …, S − 1 in a ring; to move on from s pays (s + 1)/S, to stay pays nothing. Utility 1 − [moved].

    From Simão, Jansen, Spaan, "AlwaysSafe" (AAMAS 2021), after Zheng and Ratliff 2020, as in the released code of Bura
    et al. 2022, who start at 0 and scale the reward to [0, 1]. The optimum is 2. A slack of None is 0.4 H, as there.
    """
    kernel, states = np.zeros((num_states, 2, num_states)), np.arange(num_states)
    kernel[states, STAY, states] = kernel[states, MOVE, (states + 1) % num_states] = 1.0
    reward, utility = np.zeros((2, num_states, 2))
    reward[:, MOVE], utility[:, STAY] = (states + 1) / num_states, 1.0
    return cost_limited((kernel, reward, utility), horizon, limit, slack)


def riverswim(
    rng: np.random.Generator,
    *,
    num_states: int = 6,
    horizon: int = 20,
    limit: float | None = None,
    slack: float | None = None,
) -> LinearCMDP:
    """A river from its mouth, 0, to S − 1: left goes with the current, right against it. Utility 1 − [right].

    The river is that of Osband, Russo, Van Roy, "(More) Efficient Reinforcement Learning via Posterior Sampling"
    (NeurIPS 2013), after Strehl and Littman 2008; the limit on strokes is ours. A slack of None is H/4.
    """
    as_count("num_states", num_states, 2)  # a river has a mouth and an upper end
    kernel, last = np.zeros((num_states, 2, num_states)), num_states - 1
    for s in range(num_states):
        kernel[s, LEFT, max(s - 1, 0)] = 1.0
        if 0 < s < last:
            kernel[s, RIGHT, s - 1 : s + 2] = 0.05, 0.6, 0.35
    kernel[0, RIGHT, :2], kernel[last, RIGHT, -2:] = (0.4, 0.6), (0.4, 0.6)
    reward, utility = np.zeros((2, num_states, 2))
    reward[0, LEFT], reward[last, RIGHT], utility[:, LEFT] = 0.005, 1.0, 1.0
    return cost_limited((kernel, reward, utility), horizon, limit, slack, share=0.25)


def jobs(
    rng: np.random.Generator, *, num_jobs: int = 9, horizon: int = 10, threshold: float = 3.5, slack: float = 0.5
) -> LinearCMDP:
    """A full stack of jobs, S − 1; a = 1 sends two of them to a machine, which does 2, 1, 0 with ℙ = 0.8, 0.1, 0.1.

    From Ghosh, Zhou, Shroff, "Towards Achieving Sub-linear Regret and Hard Constraint Violation in Model-free RL"
    (AISTATS 2024), appendix K.1. Reward 1 − 0.9 a at steps 3 to 6, else 1 − 0.2 a; utility is half of the jobs done.
    The optimum is 9.1765, the largest utility 4.4998. They have no incumbent: the slack is ours.
    """
    check_range("threshold", threshold, 0, horizon)
    kernel, states = np.zeros((num_jobs + 1, 2, num_jobs + 1)), np.arange(num_jobs + 1)
    kernel[states, WAIT, states] = 1.0
    for count, probability in enumerate((0.1, 0.1, 0.8)):
        kernel[:, SEND] += probability * np.eye(num_jobs + 1)[np.maximum(states - count, 0)]
    reward = np.ones((horizon, num_jobs + 1, 2))
    reward[:, :, SEND] = 1 - 0.2
    reward[DEAR, :, SEND] = 1 - 0.9
    utility, start = (states[:, None] - kernel @ states) / 2, num_jobs
    return stationary(kernel, reward, utility, horizon=horizon, threshold=threshold, slack=slack, initial_state=start)


def queue(
    rng: np.random.Generator,
    *,
    buffer_length: int = 5,
    num_levels: int = 3,
    horizon: int = 50,
    throughput: float = 0.4,
    slack: float | None = None,
    num_constraints: int = 1,
    effort: float = 0.45,
) -> LinearCMDP:
    """A single server with a buffer 0..L that starts empty; an action is a pair of service and admission rates.

    After Altman, "Constrained Markov Decision Processes" (1999), chapter 5, in the form of Provodin, Kaptein,
    Pechenizkiy's released code (2024), where the average over a long run counts. Reward 1 − s/L, utility the admission
    rate, 0 in a full buffer. The second constraint, as in that code, is on the service: utility 1 − its rate. Sizes,
    thresholds and rates (0.1 to 0.5 for service, 0.1 to 0.9 for admission) are ours.

    Args:
        buffer_length, num_levels: L = S − 1; levels of each rate, √A.
        throughput: b/H, the admissions per step, on average.
        slack: None for H/10, or H/20 each.
        num_constraints: 1 for the throughput alone, 2 for the service too.
        effort: the service per step, on average, that the second constraint allows.
    """
    check_range("throughput", throughput, 0, 1)
    check_range("effort", effort, 0, 1)
    as_count("num_constraints", num_constraints, 1, 3)  # the throughput, and the service
    rates = np.array(list(product(np.linspace(0.1, 0.5, num_levels), np.linspace(0.1, 0.9, num_levels))))
    kernel, admitted = _moves(rates, buffer_length)
    short = 1 - np.arange(buffer_length + 1) / buffer_length
    reward, limit = np.repeat(short[:, None], len(rates), axis=1), throughput * horizon
    slack = horizon / (10 * num_constraints) if slack is None else slack
    if num_constraints == 1:
        return stationary(kernel, reward, admitted, threshold=limit, slack=slack, horizon=horizon)
    utilities = [admitted, np.broadcast_to(1 - rates[:, 0], admitted.shape)]
    told: Tables = {"threshold": [limit, (1 - effort) * horizon], "slack": [slack] * 2}
    return stationary(kernel, reward, utilities, horizon=horizon, names=("throughput", "service"), **told)


def _moves(rates: Array, buffer_length: int) -> tuple[Array, Array]:
    """Return P (S, A, S) and admission rates (S, A) of pairs (service, admission); a full buffer admits nothing."""
    kernel = np.stack([buffer_kernel(b, a, buffer_length) for a, b in rates], axis=1)
    kernel[-1] = [buffer_kernel(0.0, a, buffer_length)[-1] for a, _ in rates]
    admitted = np.tile(rates[:, 1], (buffer_length + 1, 1))
    admitted[-1] = 0.0
    return kernel, admitted


def dirichlet(
    rng: np.random.Generator,
    *,
    num_states: int = 30,
    num_actions: int = 3,
    horizon: int = 10,
    dirichlet: float = 0.1,
    probability_of_one: float = 0.5,
    threshold_scale: float = 0.5,
    slack: float | None = None,
) -> LinearCMDP:
    """A random tabular CMDP whose utility is what its reward is not: u = 1 − r, r_h(s,a) Bernoulli.

    From Kitamura et al., "A Policy Gradient Primal-Dual Algorithm for Constrained MDPs with Uniform PAC Guarantees"
    (2024), by their released code. They have no incumbent: it is ours.

    Args:
        dirichlet: weight of each entry of the Dirichlet that P_h(·|s,a) is drawn from.
        probability_of_one: ℙ(r_h(s,a) = 1), independently for each entry.
        threshold_scale: b over the largest utility.
        slack: None for the policy of largest utility as incumbent.
    """
    check_range("dirichlet", dirichlet, 0, math.inf)
    check_range("probability_of_one", probability_of_one, 0, 1)
    shape = (horizon, num_states, num_actions)

    def draw() -> Tables:
        reward = (rng.random(shape) < probability_of_one).astype(np.float64)
        P = rng.dirichlet(np.full(num_states, dirichlet), shape)
        return {"P": P, "reward": reward, "utility": 1 - reward, "initial_state": int(rng.integers(num_states))}

    return draw_feasible(draw, threshold_scale, slack)


def stepmix(
    rng: np.random.Generator,
    *,
    num_states: int = 5,
    num_actions: int = 5,
    horizon: int = 3,
    threshold: float = 2.0,
    sharpness: float = 5.0,
    slack: float = 0.1,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """Conservative exploration: the reward is the utility too, so that no policy may earn less than b on the way.

    From Li, Huang, Shen, Yang, "Near-optimal Conservative Exploration in Reinforcement Learning under Episode-wise
    Constraints" (ICML 2023), section 7: r_h(s,a) uniform on [0, 1], P_h(·|s,a) uniform on the simplex; the incumbent
    is their Boltzmann policy, π_h(a|s) ∝ exp(η Q*_h(s,a)). A draw whose incumbent has too little slack is drawn
    again; that is ours.

    Args:
        threshold: b; they have 2.0 and 2.2.
        sharpness: η > 0; they have 5 and 10.
        slack: the least that the incumbent has above the threshold.
        time_homogeneous: one P and one r for all steps, as the agent knows, as in their section 7.2.
    """
    for name, value in (("threshold", threshold), ("sharpness", sharpness), ("slack", slack)):
        check_range(name, value, 0, math.inf)
    drawn = 1 if time_homogeneous else horizon
    for redraws in range(MAX_DRAWS):
        reward = rng.random((drawn, num_states, num_actions))
        P = rng.dirichlet(np.ones(num_states), (drawn, num_states, num_actions))
        P, reward = (np.repeat(array, horizon // drawn, axis=0) for array in (P, reward))
        incumbent, utility = boltzmann(P, reward, sharpness)
        if utility[0] >= threshold + slack:
            told: Tables = {"threshold": threshold, "safe_policy": incumbent, "time_homogeneous": time_homogeneous}
            return LinearCMDP(P, reward, reward, origin={"redraws": redraws}, **told)
    raise ValueError(f"{MAX_DRAWS} draws gave no incumbent of utility {threshold + slack:g}: lower threshold or slack")


def boltzmann(P: Array, reward: Array, sharpness: float) -> tuple[Array, Array]:
    """Return π_h(a|s) ∝ exp(η Q*_h(s,a)), shape (H, S, A), and its value at step 0, shape (S,)."""
    policy, best, value = np.empty_like(reward), np.zeros(P.shape[1]), np.zeros(P.shape[1])
    for h in reversed(range(len(P))):
        Q = reward[h] + P[h] @ best
        best = Q.max(axis=1)
        weights = np.exp(sharpness * (Q - best[:, None]))
        policy[h] = weights / weights.sum(axis=1, keepdims=True)
        value = (policy[h] * (reward[h] + P[h] @ value)).sum(axis=1)
    return policy, value
