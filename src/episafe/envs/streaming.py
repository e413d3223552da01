"""Media streaming: a base station fills a buffer by fast or slow service; slow service is the utility."""

from typing import Any

import numpy as np

from episafe.envs.options import check_interval, check_range, check_sizes
from episafe.envs.threshold_draw import Origin, Variant, draw_feasible
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array

FAST, SLOW = 0, 1


def streaming(
    rng: np.random.Generator,
    variant: Variant = "released",
    *,
    buffer_length: int = 5,
    horizon: int = 4,
    fast_rate: tuple[float, float] = (0.5, 0.9),
    departure_rate: tuple[float, float] = (0.1, 0.4),
    full_share: float = 0.3,
    threshold_scale: float = 0.6,
    origin: Origin,
) -> LinearCMDP:
    """A media buffer 0..L that starts empty; a = 0 is fast service, a = 1 slow service.

    Args:
        rng: the environment's own stream.
        variant: where the reward starts: s ≥ 0.3 L in the text, s ≥ ⌊0.3 L⌋ in the released code (1 in place of 2).
        buffer_length: L.
        horizon: H.
        fast_rate: range of μ₁; the slow rate is μ₂ = 1 − μ₁.
        departure_rate: range of the play-out probability.
        full_share: the share of the buffer from which on there is reward.
        threshold_scale: b over the largest utility.
        origin: kept with the problem.
    """
    check_sizes(buffer_length=buffer_length, horizon=horizon)
    check_interval("fast_rate", fast_rate)
    check_interval("departure_rate", departure_rate)
    check_range("full_share", full_share, 0, 1)
    num_states = buffer_length + 1
    enough = full_share * buffer_length if variant == "text" else int(full_share * buffer_length)

    def draw() -> dict[str, Any]:
        rate, departure = rng.uniform(*fast_rate), rng.uniform(*departure_rate)
        kernel = np.stack([buffer_kernel(mu, departure, buffer_length) for mu in (rate, 1 - rate)], axis=1)
        reward = np.zeros((horizon, num_states, 2))
        reward[:, np.arange(num_states) >= enough] = 1.0
        utility = np.zeros((horizon, num_states, 2))
        utility[:, :, SLOW] = 1.0
        return {
            "P": np.tile(kernel, (horizon, 1, 1, 1)),
            "reward": reward,
            "utility": utility,
            "initial_state": 0,
        }

    return draw_feasible(draw, threshold_scale, origin)


def buffer_kernel(arrival: float, departure: float, buffer_length: int) -> Array:
    """P(s'|s) of s' = min{max{0, s + A − B}, L}, A ~ Bernoulli(arrival), B ~ Bernoulli(departure), shape (L+1, L+1)."""
    P = np.zeros((buffer_length + 1, buffer_length + 1))
    up, down = arrival * (1 - departure), (1 - arrival) * departure
    for s in range(buffer_length + 1):
        P[s, min(s + 1, buffer_length)] += up
        P[s, max(s - 1, 0)] += down
        P[s, s] += 1 - up - down
    return P
