"""Small problems of other papers with one kernel for all steps, given by tables; nothing is drawn."""

from itertools import product
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE
from episafe.envs.baseline import limited, stationary
from episafe.envs.options import check_interval, check_range, check_sizes
from episafe.envs.paper_environments import FAST, buffer_kernel
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array

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
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A media buffer that starts empty; a = 0 is fast service. Reward 1 − [empty], utility 1 − [fast].

    From Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "DOPE" (NeurIPS 2022), by their released code. They
    count costs: the optimum 6.7467 of 10 steps is a reward of 3.2533, and at most 5 fast steps are b = 5.

    Args:
        rng: not used: nothing is drawn.
        num_states, horizon: S, H.
        fast_rate, slow_rate, departure_rate: arrivals under each service, and departures, a step.
        limit: fast steps in an episode, on average; None for H/2, as published.
        slack: of the incumbent; None for 0.4 H, as published: it has a fifth of the limit.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(num_states=num_states, horizon=horizon)
    for name, rate in (("fast_rate", fast_rate), ("slow_rate", slow_rate), ("departure_rate", departure_rate)):
        check_range(name, rate, 0, 1)
    kernel = np.stack([buffer_kernel(rate, departure_rate, num_states - 1) for rate in (fast_rate, slow_rate)], axis=1)
    reward, utility = np.ones((2, num_states, 2))
    reward[0], utility[:, FAST] = 0.0, 0.0
    told = {"slack": _given(slack, 0.4 * horizon), "time_homogeneous": time_homogeneous}
    return limited(kernel, reward, utility, _given(limit, horizon / 2), horizon=horizon, **told)


def ring(
    rng: np.random.Generator,
    *,
    num_states: int = 3,
    horizon: int = 6,
    limit: float | None = None,
    slack: float | None = None,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """States 0, …, S − 1 in a ring; to move on from s pays (s + 1)/S, to stay pays nothing. Utility 1 − [moved].

    From Simão, Jansen, Spaan, "AlwaysSafe" (AAMAS 2021), after Zheng and Ratliff 2020, as in the released code of Bura
    et al. 2022, who start at 0 and scale the reward to [0, 1]. The optimum is 2.

    Args:
        rng: not used: nothing is drawn.
        num_states, horizon: S, H.
        limit: moves in an episode, on average; None for H/2, as published.
        slack: of the incumbent; None for 0.4 H, as in Bura et al.: it has a fifth of the limit.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(num_states=num_states, horizon=horizon)
    kernel, states = np.zeros((num_states, 2, num_states)), np.arange(num_states)
    kernel[states, STAY, states] = kernel[states, MOVE, (states + 1) % num_states] = 1.0
    reward, utility = np.zeros((2, num_states, 2))
    reward[:, MOVE], utility[:, STAY] = (states + 1) / num_states, 1.0
    told = {"slack": _given(slack, 0.4 * horizon), "time_homogeneous": time_homogeneous}
    return limited(kernel, reward, utility, _given(limit, horizon / 2), horizon=horizon, **told)


def riverswim(
    rng: np.random.Generator,
    *,
    num_states: int = 6,
    horizon: int = 20,
    limit: float | None = None,
    slack: float | None = None,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A river from its mouth, 0, to S − 1: left goes with the current, right against it. Utility 1 − [right].

    The river is that of Osband, Russo, Van Roy, "(More) Efficient Reinforcement Learning via Posterior Sampling"
    (NeurIPS 2013), after Strehl and Littman 2008; the limit on strokes is ours.

    Args:
        rng: not used: nothing is drawn.
        num_states, horizon: S ≥ 2, H.
        limit: strokes to the right in an episode, on average; None for H/2.
        slack: of the incumbent, the best policy of so many strokes less; None for H/4.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(num_states=num_states, horizon=horizon)
    if num_states < 2:
        raise ValueError("num_states must be at least 2: a river has a mouth and an upper end")
    kernel, last = np.zeros((num_states, 2, num_states)), num_states - 1
    for s in range(num_states):
        kernel[s, LEFT, max(s - 1, 0)] = 1.0
        if 0 < s < last:
            kernel[s, RIGHT, s - 1 : s + 2] = 0.05, 0.6, 0.35
    kernel[0, RIGHT, :2], kernel[last, RIGHT, -2:] = (0.4, 0.6), (0.4, 0.6)
    reward, utility = np.zeros((2, num_states, 2))
    reward[0, LEFT], reward[last, RIGHT], utility[:, LEFT] = 0.005, 1.0, 1.0
    told = {"slack": _given(slack, horizon / 4), "time_homogeneous": time_homogeneous}
    return limited(kernel, reward, utility, _given(limit, horizon / 2), horizon=horizon, **told)


def jobs(
    rng: np.random.Generator,
    *,
    num_jobs: int = 9,
    horizon: int = 10,
    done: tuple[float, float, float] = (0.1, 0.1, 0.8),
    threshold: float = 3.5,
    slack: float = 0.5,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A full stack of jobs; a = 1 sends two of them to a machine, which does both, one or none.

    From Ghosh, Zhou, Shroff, "Towards Achieving Sub-linear Regret and Hard Constraint Violation in Model-free RL"
    (AISTATS 2024), appendix K.1. Reward 1 − 0.9 a at steps 3 to 6, else 1 − 0.2 a; utility is half of the jobs done.
    The optimum is 9.1765, the largest utility 4.4998. They have no incumbent: the slack is ours.

    Args:
        rng: not used: nothing is drawn.
        num_jobs, horizon: jobs at the start, S − 1; H.
        done: probabilities that the machine does 0, 1, 2 jobs.
        threshold: b, half of the jobs to be done, on average.
        slack: of the incumbent, the best policy of utility b + slack.
        time_homogeneous: whether the learner is told that jobs are done at every step alike.
    """
    check_sizes(num_jobs=num_jobs, horizon=horizon)
    check_range("threshold", threshold, 0, horizon)
    if len(done) != 3 or min(done) < 0 or abs(sum(done) - 1) > TOLERANCE:
        raise ValueError(f"done must be three probabilities that sum to 1, of 0, 1 and 2 jobs, got {done!r}")
    kernel, states = np.zeros((num_jobs + 1, 2, num_jobs + 1)), np.arange(num_jobs + 1)
    kernel[states, WAIT, states] = 1.0
    for count, probability in enumerate(done):
        kernel[:, SEND] += probability * np.eye(num_jobs + 1)[np.maximum(states - count, 0)]
    reward = np.ones((horizon, num_jobs + 1, 2))
    reward[:, :, SEND] = 1 - 0.2
    reward[DEAR, :, SEND] = 1 - 0.9
    utility = (states[:, None] - kernel @ states) / 2
    return stationary(
        kernel, reward, utility, horizon=horizon, threshold=threshold, slack=slack, initial_state=num_jobs,
        time_homogeneous=time_homogeneous,
    )  # fmt: skip


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
        return stationary(kernel, reward, admitted, threshold=limit, slack=_given(slack, horizon / 10), **told)
    idle = np.broadcast_to(1 - rates[:, 0], admitted.shape)
    return stationary(
        kernel, reward, [admitted, idle], threshold=[limit, (1 - effort) * horizon], names=("throughput", "service"),
        slack=[_given(slack, horizon / 20)] * 2, **told,
    )  # fmt: skip


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


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
