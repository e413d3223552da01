"""The loop for OPSE under `certify.Observation`: the same steps, in the same order, as the plain loop.

Proposing is rare and stays in Python; choosing a mixture, acting, learning and crediting are here. A test compares the
records of both loops bit for bit.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import inlined_kernel, kernel, lean_kernel
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
    then −1, and its `bounds` (m,). `acted` (1, H, n) and `shares` (1, n) are room for `share_out`. `utilities`
    (m, H, S, A), `thresholds` b (m,).
    """

    tables: Array
    running: Array
    values: Array
    lams: Array
    weights: Array
    rows: IntArray
    bounds: Array
    acted: Array
    shares: Array
    utilities: Array
    thresholds: Array


@kernel
def play(world, on_trial, sequences, lower, learner, streams, columns, stretch):  # type: ignore[no-untyped-def]
    """The episodes of a stretch, or until the arrays are full; returns the first episode not made.

    `sequences` are the trials of each constraint, `lower` (n, m) is room for their bounds, None where there is one.
    `learner` is (visited, model), `streams` those of actions, transitions and the coin, `columns` (facts, coins,
    trace), `stretch` the first episode, the one after the last, how many the certificate has seen, and whether
    proposing went wrong, so that the incumbent acts. It also ends before a mixture of more policies than there is room
    for in the columns.
    """
    (visited, model), (choices, transitions, coin), (facts, coins, trace) = learner, streams, columns
    start, stop, num_credited, failed = stretch
    size, n, (_, H, _, _) = visited.support.size, visited.phi.shape[3], on_trial.tables.shape
    states, actions, slots = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), np.empty(H, dtype=np.int64)
    traced, first, scores = trace.rows.shape[0] > 0, sequences[0], np.empty(on_trial.lams.shape[0])
    rows, running = on_trial.rows, on_trial.running
    for k in range(start, stop):
        if is_full(model, size, n, 1):
            return k
        if lower is None:  # so that a program of one constraint is compiled without the others
            num_parts = deploy_pair(on_trial, first, num_credited + k - start, failed)
        else:
            look(sequences, scores, lower)
            reach = (num_credited + k - start) / EPISODES_TO_CERTIFY
            chosen = choose_weights(scores, first.newest[0], lower, on_trial.thresholds, first.in_use, reach)
            num_parts = deploy_several(on_trial, chosen, lower, failed)
        if num_parts > coins.weights.shape[1]:
            return k
        note(on_trial, facts, coins, k, num_parts)
        part = 0
        if num_parts > 1:
            part = toss(on_trial, num_parts, coin.random())
            coins.components[k] = part
        acting = rows[part]
        coins.acting[k] = acting
        states[0] = world.initial_state
        simulate(running[acting], world.running, choices, transitions, states, actions)
        if traced:
            write_down(trace, k, states, actions, model.log_det)
        reward = share_among(world, on_trial, states, actions, num_parts)
        if lower is None:
            credit_parts(on_trial, first, 0, states, actions, num_parts, reward)
        else:
            credit_all(on_trial, sequences, states, actions, num_parts, reward)
        enter(visited, states, slots)
        absorb(model, slots, actions)
    return stop


@lean_kernel
def deploy_pair(on_trial, trials, num_episodes, failed):  # type: ignore[no-untyped-def]
    """Put one policy, or two by closed forms, in force after so many episodes; how many it is."""
    threshold = on_trial.thresholds[0]
    clear(on_trial)
    i, j, p, bound = choose(trials, threshold, num_episodes)
    if failed or not (i == j == 0 or admits(bound, threshold)):
        i, j, p, bound = 0, 0, 1.0, np.nan
    on_trial.rows[0], on_trial.weights[i], on_trial.bounds[0] = i, p, bound
    if i == j:
        return 1
    on_trial.rows[1], on_trial.weights[j] = j, 1.0 - p
    return 2


@lean_kernel
def clear(on_trial):  # type: ignore[no-untyped-def]
    """Nothing is deployed."""
    for i in range(on_trial.weights.shape[0]):
        on_trial.weights[i], on_trial.rows[i] = 0.0, -1


@lean_kernel
def look(sequences, scores, lower):  # type: ignore[no-untyped-def]
    """What is known of the policies now: how good they seem, (n,), and their bounds, (n, m)."""
    for i in range(scores.shape[0]):
        scores[i] = score(sequences[0], i) if sequences[0].in_use[i] == 1 else 0.0
        for c in range(len(sequences)):
            lower[i, c] = sequences[c].lower[i]


@lean_kernel
def deploy_several(on_trial, chosen, lower, failed):  # type: ignore[no-untyped-def]
    """Put the weights (n,) that a linear program chose in force, the incumbent last; how many policies it is."""
    clear(on_trial)
    n, parts, alone = chosen.shape[0], 0, failed or not keeps_all(chosen, lower, on_trial.thresholds)
    for i in range(1, n):
        if chosen[i] > 0.0 and not alone:
            on_trial.weights[i], on_trial.rows[parts] = chosen[i], i
            parts += 1
    if chosen[0] > 0.0 or alone:
        on_trial.weights[0], on_trial.rows[parts] = 1.0 if alone else chosen[0], 0
        parts += 1
    for c in range(on_trial.bounds.shape[0]):
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
    rows, weights, values = on_trial.rows, on_trial.weights, on_trial.values
    coins.components[k], first = 0, rows[0]
    for part in range(coins.weights.shape[1]):
        coins.weights[k, part] = weights[rows[part]] if part < num_parts else 0.0
    for g in range(values.shape[1]):
        value = values[first, g]
        if num_parts > 1:
            value *= weights[first]
            for part in range(1, num_parts):
                value += weights[rows[part]] * values[rows[part], g]
        facts.values[k, g] = value
    alone = num_parts == 1 and first == 0
    facts.sources[k] = SAFE if alone else SEARCH
    facts.bounds[k, 0] = np.nan if alone else on_trial.lams[first]
    for c in range(on_trial.bounds.shape[0]):
        facts.bounds[k, 1 + c] = np.nan if alone else on_trial.bounds[c]


@lean_kernel
def share_among(world, on_trial, states, actions, num_parts):  # type: ignore[no-untyped-def]
    """The shares of the policies that are deployed in an episode, into `on_trial.shares`; its total reward."""
    rows, acted, shares, reward = on_trial.rows, on_trial.acted, on_trial.shares, 0.0
    for part in range(num_parts):
        shares[0, part] = on_trial.weights[rows[part]]
    for h in range(actions.shape[0]):
        s, a = states[h], actions[h]
        reward += world.reward[h, s, a]
        for part in range(num_parts):
            acted[0, h, part] = on_trial.tables[rows[part], h, s, a]
    share_out(acted, num_parts, shares)
    return reward


@inlined_kernel
def credit_parts(on_trial, trials, c, states, actions, num_parts, reward):  # type: ignore[no-untyped-def]
    """Credit an episode to the policies that are deployed and may have acted in it, in constraint c."""
    utility = 0.0
    for h in range(actions.shape[0]):
        utility += on_trial.utilities[c, h, states[h], actions[h]]
    utility = max(utility, trials.least[0])  # up to rounding: the problem knows that no episode has less
    for part in range(num_parts):
        credit(trials, on_trial.rows[part], on_trial.shares[0, part], utility, reward)


@lean_kernel
def credit_all(on_trial, sequences, states, actions, num_parts, reward):  # type: ignore[no-untyped-def]
    """The same in every constraint."""
    for c in range(len(sequences)):
        credit_parts(on_trial, sequences[c], c, states, actions, num_parts, reward)
