"""The loop for OPSE under `certify.Observation`: the same steps, in the same order, as the plain loop.

Proposing is rare and stays in Python; choosing a mixture, acting, learning and crediting are here. A test compares the
records of both loops bit for bit.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.episode_trace import write_down
from episafe.kernels.mixing import admits
from episafe.kernels.mixture_choice import choose
from episafe.kernels.model_update import absorb, enter, is_full
from episafe.kernels.simulation import simulate
from episafe.kernels.wealth import credit, share_out
from episafe.types import SAFE, SEARCH, Array


class OnTrial(NamedTuple):
    """The policies on trial, by row: `tables` (n, H, S, A), their running sums, `values` (n, 2) V^r, V^u, `lams` (n,).

    `last` (4,) is what was deployed last: i, j, p, bound. `threshold` is b.
    """

    tables: Array
    running: Array
    values: Array
    lams: Array
    last: Array
    threshold: float


@kernel
def play(world, on_trial, trials, learner, streams, columns, trace, stretch):  # type: ignore[no-untyped-def]
    """The episodes of a stretch, or until the arrays are full; returns the first episode not made.

    `learner` is (visited, model), `streams` those of actions, transitions and the coin, `columns` (facts, coins),
    `stretch` the first episode, the one after the last, how many the certificate has seen, and whether proposing went
    wrong, so that the incumbent acts.
    """
    (visited, model), (choices, transitions, coin), (facts, coins) = learner, streams, columns
    start, stop, num_credited, failed = stretch
    size, n, (_, H, _, _) = visited.support.size, visited.phi.shape[3], on_trial.tables.shape
    states, actions, slots = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), np.empty(H, dtype=np.int64)
    traced, acted, shares = trace.rows.shape[0] > 0, np.empty((1, H, 2)), np.empty((1, 2))
    for k in range(start, stop):
        if is_full(model, size, n, 1):
            return k
        i, j, p, bound = choose(trials, on_trial.threshold, num_credited + k - start)
        if failed or not (i == j == 0 or admits(bound, on_trial.threshold)):
            i, j, p, bound = 0, 0, 1.0, np.nan
        on_trial.last[0], on_trial.last[1], on_trial.last[2], on_trial.last[3] = i, j, p, bound
        note(on_trial, facts, coins, k)
        acting = i
        if i != j and not p > coin.random():
            acting, coins.components[k] = j, 1
        coins.acting[k] = acting
        states[0] = world.initial_state
        simulate(on_trial.running[acting], world.running, choices, transitions, states, actions)
        if traced:
            write_down(trace, k, states, actions, model.log_det)
        credit_both(world, on_trial, trials, (states, actions), acted, shares)
        enter(visited, states, slots)
        absorb(model, slots, actions)
    return stop


@lean_kernel
def note(on_trial, facts, coins, k):  # type: ignore[no-untyped-def]
    """The facts of episode k that are known before it, of what is deployed."""
    i, j, p, bound = int(on_trial.last[0]), int(on_trial.last[1]), on_trial.last[2], on_trial.last[3]
    coins.components[k], coins.weights[k, 0], coins.weights[k, 1] = 0, p, 1.0 - p
    facts.bounds[k, 0], facts.bounds[k, 1], facts.sources[k] = on_trial.lams[i], bound, SEARCH
    if i == j == 0:
        facts.bounds[k, 0], facts.bounds[k, 1], facts.sources[k] = np.nan, np.nan, SAFE
    for g in range(2):
        facts.values[k, g] = on_trial.values[i, g]
        if i != j:
            facts.values[k, g] = p * on_trial.values[i, g] + (1.0 - p) * on_trial.values[j, g]


@lean_kernel
def credit_both(world, on_trial, trials, episode, acted, shares):  # type: ignore[no-untyped-def]
    """Credit an episode to the one or two policies that are deployed and may have acted in it.

    `acted` (1, H, 2) and `shares` (1, 2) are room for `share_out`.
    """
    i, j, p, tables = int(on_trial.last[0]), int(on_trial.last[1]), on_trial.last[2], on_trial.tables
    (states, actions), total_r, total_u = episode, 0.0, 0.0
    for h in range(actions.shape[0]):
        s, a = states[h], actions[h]
        total_r += world.reward[h, s, a]
        total_u += world.utility[h, s, a]
        acted[0, h, 0], acted[0, h, 1] = tables[i, h, s, a], tables[j, h, s, a]
    shares[0, 0], shares[0, 1] = p, 1.0 - p
    share_out(acted, 1 if i == j else 2, shares)
    total_u = max(total_u, trials.least[0])  # up to rounding: the problem knows that no episode has less
    credit(trials, i, shares[0, 0], total_u, total_r)
    if i != j:
        credit(trials, j, shares[0, 1], total_u, total_r)
