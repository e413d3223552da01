"""Flow control of a queue: keep it short, and let enough in."""

from itertools import product

import numpy as np

from episafe.envs.baseline import stationary
from episafe.envs.options import check_interval, check_range, check_sizes
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array


def queue(
    rng: np.random.Generator,
    *,
    buffer_length: int = 5,
    num_levels: int = 3,
    horizon: int = 50,
    service: tuple[float, float] = (0.1, 0.5),
    admission: tuple[float, float] = (0.1, 0.9),
    throughput: float = 0.4,
    slack: float | None = None,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A single server with a buffer 0..L that starts empty; an action is a pair of service and admission rates.

    After Altman, "Constrained Markov Decision Processes" (1999), chapter 5, in the form of Provodin, Kaptein,
    Pechenizkiy's released code (2024), where the average over a long run counts and the service is constrained too.
    Reward 1 − s/L, utility the admission rate, 0 in a full buffer. Sizes, rates and threshold are ours.

    Args:
        rng: not used: nothing is drawn.
        buffer_length, num_levels, horizon: L = S − 1; levels of each rate, √A; H.
        service, admission: lowest and highest rates; the levels lie evenly between them.
        throughput: b/H, the admissions a step, on average.
        slack: of the incumbent, the best policy of utility b + slack; None for H/10.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(buffer_length=buffer_length, num_levels=num_levels, horizon=horizon)
    check_interval("service", service)
    check_interval("admission", admission)
    check_range("throughput", throughput, 0, 1)
    rates = np.array(list(product(np.linspace(*service, num_levels), np.linspace(*admission, num_levels))))
    kernel, admitted = _moves(rates, buffer_length)
    short = 1 - np.arange(buffer_length + 1) / buffer_length
    return stationary(
        kernel, np.repeat(short[:, None], len(rates), axis=1), admitted, horizon=horizon,
        threshold=throughput * horizon, slack=horizon / 10 if slack is None else slack,
        time_homogeneous=time_homogeneous,
    )  # fmt: skip


def _moves(rates: Array, buffer_length: int) -> tuple[Array, Array]:
    """P (S, A, S) and the admission rate (S, A): up with b(1 − a), down with a(1 − b); b = 0 in a full buffer."""
    S, A = buffer_length + 1, len(rates)
    kernel, admitted = np.zeros((S, A, S)), np.tile(rates[:, 1], (S, 1))
    admitted[-1] = 0.0
    for s in range(S):
        a, b = rates[:, 0], admitted[s]
        up, down = b * (1 - a), a * (1 - b) if s > 0 else np.zeros(A)
        kernel[s, :, min(s + 1, buffer_length)] += up
        kernel[s, :, max(s - 1, 0)] += down
        kernel[s, :, s] += 1 - up - down
    return kernel, admitted
