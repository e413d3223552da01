"""Random tabular problems of other papers: Dirichlet kernels with opposed signals, and one signal for both."""

import math

import numpy as np

from episafe.envs.options import check_range, check_sizes
from episafe.envs.paper_environments import MAX_DRAWS, draw_feasible
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array


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
        rng: the environment's own stream.
        num_states, num_actions, horizon: S, A, H.
        dirichlet: weight of each entry of the Dirichlet that P_h(·|s,a) is drawn from.
        probability_of_one: ℙ(r_h(s,a) = 1), independently for each entry.
        threshold_scale: b over the largest utility.
        slack: of the incumbent, the best policy of utility b + slack; None for the policy of largest utility.
    """
    check_sizes(num_states=num_states, num_actions=num_actions, horizon=horizon)
    check_range("dirichlet", dirichlet, 0, math.inf)
    check_range("probability_of_one", probability_of_one, 0, 1)
    shape = (horizon, num_states, num_actions)

    def draw() -> dict[str, Array | int]:
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
        rng: the environment's own stream.
        num_states, num_actions, horizon: S, A, H; s₁ = 0.
        threshold: b; they have 2.0 and 2.2.
        sharpness: η > 0; they have 5 and 10.
        slack: the least that the incumbent has above the threshold.
        time_homogeneous: one P and one r for all steps, of which the learner is told, as in their section 7.2.
    """
    check_sizes(num_states=num_states, num_actions=num_actions, horizon=horizon)
    for name, value in (("threshold", threshold), ("sharpness", sharpness), ("slack", slack)):
        check_range(name, value, 0, math.inf)
    drawn = 1 if time_homogeneous else horizon
    for redraws in range(MAX_DRAWS):
        reward = rng.random((drawn, num_states, num_actions))
        P = rng.dirichlet(np.ones(num_states), (drawn, num_states, num_actions))
        P, reward = (np.repeat(array, horizon // drawn, axis=0) for array in (P, reward))
        incumbent, utility = boltzmann(P, reward, sharpness)
        if utility[0] >= threshold + slack:
            return LinearCMDP(
                P, reward, reward, threshold=threshold, safe_policy=incumbent, time_homogeneous=time_homogeneous,
                origin={"redraws": redraws},
            )  # fmt: skip
    raise ValueError(f"{MAX_DRAWS} draws gave no incumbent of utility {threshold + slack:g}: lower threshold or slack")


def boltzmann(P: Array, reward: Array, sharpness: float) -> tuple[Array, Array]:
    """π_h(a|s) ∝ exp(η Q*_h(s,a)), shape (H, S, A), and its value at step 0, shape (S,)."""
    policy, best, value = np.empty_like(reward), np.zeros(P.shape[1]), np.zeros(P.shape[1])
    for h in reversed(range(len(P))):
        Q = reward[h] + P[h] @ best
        best = Q.max(axis=1)
        weights = np.exp(sharpness * (Q - best[:, None]))
        policy[h] = weights / weights.sum(axis=1, keepdims=True)
        value = (policy[h] * (reward[h] + P[h] @ value)).sum(axis=1)
    return policy, value
