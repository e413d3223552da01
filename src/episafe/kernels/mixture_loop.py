"""The loop for OPSE under `certify.Observation`: the same steps, in the same order, as the plain loop.

Proposing is rare and stays in Python; choosing a mixture, acting, learning and crediting are here. A test compares the
records of both loops bit for bit.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.episode_trace import write_down
from episafe.kernels.mixing import admits
from episafe.kernels.mixture_choice import EPISODES_TO_CERTIFY, choose, score
from episafe.kernels.mixture_weights import choose_weights, keeps_all, mixture_bound
from episafe.kernels.model_update import absorb, enter, is_full
from episafe.kernels.simulation import simulate
from episafe.kernels.wealth import credit, share_out
from episafe.types import SAFE, SEARCH, Array, IntArray


class OnTrial(NamedTuple):
    """The policies on trial, by row: `tables` (n, H, S, A), their running sums, `values` (n, 1 + m), `lams` (n,).

    What was deployed last: its `weights` (n,), `rows` (n,), the policies that have one in the order of the mixture,
    then −1, and its `bounds` (m,). `lower` (n, m) is room for bounds, None where there is one constraint; `acted`
    (1, H, n) and `shares` (1, n) are room for `share_out`. `utilities` (m, H, S, A), `thresholds` b (m,).
    """

    tables: Array
    running: Array
    values: Array
    lams: Array
    weights: Array
    rows: IntArray
    bounds: Array
    lower: Array | None
    acted: Array
    shares: Array
    utilities: Array
    thresholds: Array


@kernel
def play(world, on_trial, sequences, learner, streams, columns, trace, stretch):  # type: ignore[no-untyped-def]
    """The episodes of a stretch, or until the arrays are full; returns the first episode not made.

    `sequences` are the trials of each constraint, `learner` is (visited, model), `streams` those of actions,
    transitions and the coin, `columns` (facts, coins), `stretch` the first episode, the one after the last, how many
    the certificate has seen, and whether proposing went wrong, so that the incumbent acts. It also ends before a
    mixture of more policies than there is room for in the columns.
    """
    (visited, model), (choices, transitions, coin), (facts, coins) = learner, streams, columns
    start, stop, num_credited, failed = stretch
    size, n, (_, H, _, _) = visited.support.size, visited.phi.shape[3], on_trial.tables.shape
    states, actions, slots = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), np.empty(H, dtype=np.int64)
    traced = trace.rows.shape[0] > 0
    for k in range(start, stop):
        if is_full(model, size, n, 1):
            return k
        num_parts = deploy(on_trial, sequences, on_trial.lower, num_credited + k - start, failed)
        if num_parts > coins.weights.shape[1]:
            return k
        note(on_trial, facts, coins, k, num_parts)
        part = 0
        if num_parts > 1:
            part = toss(on_trial, num_parts, coin.random())
            coins.components[k] = part
        acting = on_trial.rows[part]
        coins.acting[k] = acting
        states[0] = world.initial_state
        simulate(on_trial.running[acting], world.running, choices, transitions, states, actions)
        if traced:
            write_down(trace, k, states, actions, model.log_det)
        credit_all(world, on_trial, sequences, states, actions, num_parts)
        enter(visited, states, slots)
        absorb(model, slots, actions)
    return stop


@kernel
def deploy(on_trial, sequences, lower, num_episodes, failed):  # type: ignore[no-untyped-def]
    """Put the mixture to deploy after so many episodes in force, or the incumbent; how many policies it has."""
    for i in range(on_trial.weights.shape[0]):
        on_trial.weights[i], on_trial.rows[i] = 0.0, -1
    if lower is None:
        return deploy_pair(on_trial, sequences[0], num_episodes, failed)
    return deploy_several(on_trial, sequences, lower, num_episodes, failed)


@lean_kernel
def deploy_pair(on_trial, trials, num_episodes, failed):  # type: ignore[no-untyped-def]
    """With one constraint: one policy, or two in closed form."""
    threshold = on_trial.thresholds[0]
    i, j, p, bound = choose(trials, threshold, num_episodes)
    if failed or not (i == j == 0 or admits(bound, threshold)):
        i, j, p, bound = 0, 0, 1.0, np.nan
    on_trial.rows[0], on_trial.weights[i], on_trial.bounds[0] = i, p, bound
    if i == j:
        return 1
    on_trial.rows[1], on_trial.weights[j] = j, 1.0 - p
    return 2


@kernel
def deploy_several(on_trial, sequences, lower, num_episodes, failed):  # type: ignore[no-untyped-def]
    """With several: at most m + 1 policies, by a linear program; the incumbent last."""
    first, scores = sequences[0], np.empty(on_trial.weights.shape[0])
    for i in range(scores.shape[0]):
        scores[i] = score(first, i) if first.in_use[i] == 1 else 0.0
        for c in range(len(sequences)):
            lower[i, c] = sequences[c].lower[i]
    reach, thresholds = num_episodes / EPISODES_TO_CERTIFY, on_trial.thresholds
    chosen = choose_weights(scores, first.newest[0], lower, thresholds, first.in_use, reach)
    alone = failed or not keeps_all(chosen, lower, thresholds)
    parts = 0
    for position in range(scores.shape[0]):
        i = (position + 1) % scores.shape[0]
        weight = chosen[i]
        if alone:
            weight = 1.0 if i == 0 else 0.0
        if weight > 0.0:
            on_trial.weights[i], on_trial.rows[parts] = weight, i
            parts += 1
    for c in range(thresholds.shape[0]):
        on_trial.bounds[c] = mixture_bound(on_trial.weights, lower, c)
    return parts


@lean_kernel
def toss(on_trial, num_parts, uniform):  # type: ignore[no-untyped-def]
    """The part of the mixture that acts: the first whose running sum exceeds the coin."""
    above = 0.0
    for part in range(num_parts):
        above += on_trial.weights[on_trial.rows[part]]
        if above > uniform:
            return part
    return num_parts - 1


@lean_kernel
def note(on_trial, facts, coins, k, num_parts):  # type: ignore[no-untyped-def]
    """The facts of episode k that are known before it, of what is deployed."""
    m, first = on_trial.thresholds.shape[0], on_trial.rows[0]
    alone = num_parts == 1 and first == 0
    coins.components[k] = 0
    for part in range(coins.weights.shape[1]):
        coins.weights[k, part] = on_trial.weights[on_trial.rows[part]] if 1 < num_parts > part else 0.0
    if num_parts == 1:
        coins.weights[k, 0] = 1.0
    facts.sources[k] = SAFE if alone else SEARCH
    facts.bounds[k, 0] = np.nan if alone else on_trial.lams[first]
    for c in range(m):
        facts.bounds[k, 1 + c] = np.nan if alone else on_trial.bounds[c]
    for g in range(1 + m):
        value = 0.0
        for part in range(num_parts):
            value += on_trial.weights[on_trial.rows[part]] * on_trial.values[on_trial.rows[part], g]
        facts.values[k, g] = on_trial.values[first, g] if num_parts == 1 else value


@lean_kernel
def credit_all(world, on_trial, sequences, states, actions, num_parts):  # type: ignore[no-untyped-def]
    """Credit an episode to the policies that are deployed and may have acted in it, in every constraint."""
    rows, acted, shares, reward = on_trial.rows, on_trial.acted, on_trial.shares, 0.0
    for part in range(num_parts):
        shares[0, part] = on_trial.weights[rows[part]]
    for h in range(actions.shape[0]):
        s, a = states[h], actions[h]
        reward += world.reward[h, s, a]
        for part in range(num_parts):
            acted[0, h, part] = on_trial.tables[rows[part], h, s, a]
    share_out(acted, num_parts, shares)
    for c in range(len(sequences)):
        utility = 0.0
        for h in range(actions.shape[0]):
            utility += on_trial.utilities[c, h, states[h], actions[h]]
        utility = max(utility, sequences[c].least[0])  # up to rounding: the problem knows that no episode has less
        for part in range(num_parts):
            credit(sequences[c], rows[part], shares[0, part], utility, reward)
