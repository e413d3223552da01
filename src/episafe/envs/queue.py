"""Flow control of a queue: keep it short, and let enough in."""

from itertools import product
from typing import Any

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
    num_constraints: int = 1,
    effort: float = 0.45,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A single server with a buffer 0..L that starts empty; an action is a pair of service and admission rates.

    After Altman, "Constrained Markov Decision Processes" (1999), chapter 5, in the form of Provodin, Kaptein,
    Pechenizkiy's released code (2024), where the average over a long run counts. Reward 1 − s/L, utility the admission
    rate, 0 in a full buffer. The second constraint, as in that code, is on the service: utility 1 − its rate. Sizes,
    rates and thresholds are ours.

    Args:
        rng: not used: nothing is drawn.
        buffer_length, num_levels, horizon: L = S − 1; levels of each rate, √A; H.
        service, admission: lowest and highest rates; the levels lie evenly between them.
        throughput: b/H, the admissions a step, on average.
        slack: of the incumbent, the best policy of utility b + slack; None for H/10, or H/20 each.
        num_constraints: 1 for the throughput alone, 2 for the service too.
        effort: the service a step, on average, that the second constraint allows.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(buffer_length=buffer_length, num_levels=num_levels, horizon=horizon)
    check_interval("service", service)
    check_interval("admission", admission)
    check_range("throughput", throughput, 0, 1)
    check_range("effort", effort, 0, 1)
    if num_constraints not in (1, 2) or isinstance(num_constraints, bool):
        raise ValueError(f"num_constraints must be 1 or 2, got {num_constraints!r}: the throughput, and the service")
    rates = np.array(list(product(np.linspace(*service, num_levels), np.linspace(*admission, num_levels))))
    kernel, admitted = _moves(rates, buffer_length)
    short = 1 - np.arange(buffer_length + 1) / buffer_length
    told: dict[str, Any] = {"horizon": horizon, "time_homogeneous": time_homogeneous}
    reward, limit = np.repeat(short[:, None], len(rates), axis=1), throughput * horizon
    if num_constraints == 1:
        return stationary(kernel, reward, admitted, threshold=limit, slack=_slack(slack, horizon / 10), **told)
    idle = np.broadcast_to(1 - rates[:, 0], admitted.shape)
    return stationary(
        kernel, reward, [admitted, idle], threshold=[limit, (1 - effort) * horizon], names=("throughput", "service"),
        slack=[_slack(slack, horizon / 20)] * 2, **told,
    )  # fmt: skip


def _slack(given: float | None, default: float) -> float:
    return default if given is None else given


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
