"""The paper's environments: synthetic tabular and linear CMDPs, and media streaming.

Each is drawn until its largest utility is positive; the threshold is a share of that utility.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from episafe.core.checks import TOLERANCE
from episafe.core.types import Array
from episafe.envs.common import baseline, check_interval, check_range
from episafe.problems import exact
from episafe.problems.linear import LinearCMDP, Tables

Variant = Literal["released", "text"]
FAST, SLOW = 0, 1  # service of a media buffer
MAX_DRAWS = 1000
# ℙ(r = 1): the text says 0 with probability 0.1 and 1 otherwise, the released code draws 1 with probability 0.1
PROBABILITY_OF_ONE = {"released": 0.1, "text": 0.9}


def tabular(
    rng: np.random.Generator,
    *,
    variant: Variant,
    num_states: int = 5,
    num_actions: int = 3,
    horizon: int = 4,
    dirichlet: float = 0.1,
    probability_of_one: float | None = None,
    threshold_scale: float = 0.6,
    num_constraints: int = 1,
) -> LinearCMDP:
    """A random tabular CMDP: Dirichlet transitions, Bernoulli rewards and utilities, one-hot features.

    Args:
        variant: decides `probability_of_one` where that is None.
        num_states, num_actions, horizon: S, A, H.
        dirichlet: weight of each entry of the Dirichlet that P_h(·|s,a) is drawn from.
        probability_of_one: ℙ(r_h(s,a) = 1), independently for each entry; the same for u.
        threshold_scale: b over the largest utility; of several, over the values of the policy of their largest sum.
        num_constraints: m; each utility after the first is drawn from its own stream; the rest is unchanged.
    """
    check_range("dirichlet", dirichlet, 0, math.inf)
    shape, others = (horizon, num_states, num_actions), rng.spawn(num_constraints - 1)
    probability = PROBABILITY_OF_ONE[variant] if probability_of_one is None else probability_of_one
    check_range("probability_of_one", probability, 0, 1)

    def draw() -> Tables:
        reward, *utilities = ((stream.random(shape) < probability).astype(np.float64) for stream in (rng, rng, *others))
        return {
            "reward": reward,
            "utility": utilities if others else utilities[0],
            "P": rng.dirichlet(np.full(num_states, dirichlet), shape),
            "initial_state": int(rng.integers(num_states)),
        }

    return draw_feasible(draw, threshold_scale)


def linear(
    rng: np.random.Generator,
    *,
    variant: Variant,
    num_states: int = 100,
    num_actions: int = 3,
    dim: int = 5,
    horizon: int = 4,
    dirichlet: float = 0.1,
    threshold_scale: float = 0.68,
    misspecification: float = 0.0,
    active: bool = False,
) -> LinearCMDP:
    """A random linear CMDP, P_h(s'|s,a) = μ_h(s')ᵀφ(s,a), with φ(s,a) and μ_h^i from Dirichlet distributions.

    Args:
        variant: "released" divides each of r and u by its largest value, "text" leaves them as drawn.
        num_states, num_actions, dim, horizon: S, A, d, H.
        dirichlet: weight of each entry of both Dirichlet distributions.
        threshold_scale: b over the largest utility.
        misspecification: ε; the kernel is (1 − ε) φᵀμ_h + ε times a kernel that is drawn for each (h, s, a).
        active: draw until the policy of largest reward is below b, so that the limit changes the optimum.
    """
    check_range("dirichlet", dirichlet, 0, math.inf)
    check_range("misspecification", misspecification, 0, 1)

    def draw() -> Tables:
        phi = rng.dirichlet(np.full(dim, dirichlet), (num_states, num_actions))
        mu = rng.dirichlet(np.full(num_states, dirichlet), (horizon, dim))
        reward, utility = (phi @ rng.random((horizon, dim)).T for _ in range(2))
        if variant == "released":
            reward, utility = reward / reward.max(), utility / utility.max()
        P = np.einsum("hdt,sad->hsat", mu, phi)
        if misspecification:
            other = rng.dirichlet(np.full(num_states, dirichlet), P.shape[:3])
            P = (1 - misspecification) * P + misspecification * other
        return {
            "P": P,
            "reward": np.moveaxis(reward, -1, 0),
            "utility": np.moveaxis(utility, -1, 0),
            "phi": phi,
            "initial_state": int(rng.integers(num_states)),
        }

    return draw_feasible(draw, threshold_scale, active=active)


def streaming(
    rng: np.random.Generator,
    *,
    variant: Variant,
    buffer_length: int = 5,
    horizon: int = 4,
    fast_rate: tuple[float, float] = (0.5, 0.9),
    departure_rate: tuple[float, float] = (0.1, 0.4),
    threshold_scale: float = 0.6,
) -> LinearCMDP:
    """A media buffer 0..L that starts empty; a = 0 is fast service, a = 1 slow service, which is the utility.

    Args:
        variant: where the reward starts: s ≥ 0.3 L in the text, s ≥ ⌊0.3 L⌋ in the released code (1 in place of 2).
        buffer_length, horizon: L, H.
        fast_rate: range of μ₁; the slow rate is μ₂ = 1 − μ₁.
        departure_rate: range of the play-out probability.
        threshold_scale: b over the largest utility.
    """
    check_interval("fast_rate", fast_rate)
    check_interval("departure_rate", departure_rate)
    num_states = buffer_length + 1
    enough = 0.3 * buffer_length if variant == "text" else int(0.3 * buffer_length)

    def draw() -> Tables:
        rate, departure = rng.uniform(*fast_rate), rng.uniform(*departure_rate)
        kernel = np.stack([buffer_kernel(mu, departure, buffer_length) for mu in (rate, 1 - rate)], axis=1)
        reward, utility = np.zeros((2, horizon, num_states, 2))
        reward[:, np.arange(num_states) >= enough] = 1.0
        utility[:, :, SLOW] = 1.0
        return {"P": np.tile(kernel, (horizon, 1, 1, 1)), "reward": reward, "utility": utility, "initial_state": 0}

    return draw_feasible(draw, threshold_scale)


def buffer_kernel(arrival: float, departure: float, buffer_length: int) -> Array:
    """Return P(s'|s) of s' = min{max{0, s + A − B}, L}, A ~ Bernoulli(arrival), B ~ Bernoulli(departure)."""
    P = np.zeros((buffer_length + 1, buffer_length + 1))
    up, down = arrival * (1 - departure), (1 - arrival) * departure
    for s in range(buffer_length + 1):
        P[s, min(s + 1, buffer_length)] += up
        P[s, max(s - 1, 0)] += down
        P[s, s] += 1 - up - down
    return P


def draw_feasible(
    draw: Callable[[], Tables], threshold_scale: float, slack: float | None = None, active: bool = False
) -> LinearCMDP:
    """Return the first drawn problem whose largest utility is positive, with b = threshold_scale · that utility.

    Several utilities, in a list, must all be positive for the policy of their largest sum, and b is a share of each.
    A problem whose largest utility is 0, up to rounding, has no strictly safe policy; it is drawn again from the same
    stream, and the origin says how often. The incumbent is the policy of largest utility or, if a slack is given, the
    best policy of utility b + slack.
    """
    check_range("threshold_scale", threshold_scale, 0, 1)
    if threshold_scale in (0, 1):
        raise ValueError(f"threshold_scale must be in (0, 1) so that the incumbent has slack, got {threshold_scale}")
    for redraws in range(MAX_DRAWS):
        arrays = draw()
        P, reward, utility, start = (arrays[name] for name in ("P", "reward", "utility", "initial_state"))
        utilities = utility if isinstance(utility, list) else [utility]
        largest = exact.safest(P, utilities, start)[1]
        thresholds = threshold_scale * largest
        if np.min(largest - thresholds) > TOLERANCE and (not active or _binds(arrays, thresholds)):
            threshold = thresholds if isinstance(utility, list) else float(thresholds[0])
            incumbent = None if slack is None else baseline(P, reward, np.stack(utilities), start, threshold, slack)
            return LinearCMDP(**arrays, threshold=threshold, safe_policy=incumbent, origin={"redraws": redraws})
    wanted = "whose limit changes the optimum" if active else "with positive utility"
    raise ValueError(f"{MAX_DRAWS} draws gave no problem {wanted}: change the options")


def _binds(arrays: Tables, thresholds: Array) -> bool:
    """Return whether the policy of largest reward is below the threshold."""
    P, reward, utility, start = (arrays[name] for name in ("P", "reward", "utility", "initial_state"))
    free = exact.utility_greedy(P, reward)[0]
    return exact.policy_values(P, reward, utility, free, start)[1] < thresholds[0] - TOLERANCE
