"""Episodes on a known kernel: of a softmax agent, and of a SafeAgent while its set of candidates is fixed.

Wealth, shares and the choice of a mixture are the functions that Python calls too, so that the records of the compiled
and of the plain loop have the same bits. Proposing stays in Python between two calls.
"""

from typing import NamedTuple

import numpy as np

from episafe.core.types import SAFE, SEARCH, Array, IntArray
from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.mixture import EPISODES_TO_CERTIFY, choose_pair, choose_weights, keeps_all, reward_row, score
from episafe.kernels.simulation import policy_values, simulate
from episafe.kernels.softmax_decision import decide_all
from episafe.kernels.softmax_learning import is_full, learn, most_transitions
from episafe.kernels.wealth import credit, mixture_bound, share_out


@kernel
def play_softmax(law, deployed, learner, streams, facts, start, stop):  # type: ignore[no-untyped-def]
    """Play episodes `start` to `stop`, or until the model is full; return the first episode not played.

    Args:
        law: what the agent does not know; `law.utility` (m, H, S, A).
        deployed: the plan in force. Its table (H, S, A) and running sums; its values (1+m,), V^r and V^u, and bounds
            (1+m,), Σλ and the bounds; marks (3,): source, plan id, and whether a new plan is due; ln det Λ when it was
            made (R,). Then the incumbent's table.
        learner: the arguments of a decision (model, slots, work, scales, search), phi, and the growth of ln det Λ after
            which to plan again.
        streams: generators of actions and of transitions.
        facts: values and bounds (K, 1+m), sources and plan ids (K,).
        start, stop: the episodes.
    """
    (run, phi, growth), (choices, transitions), (values, bounds, sources, plan_ids) = learner, streams, facts
    model, slots, work, _, _ = run
    _, running, own_values, own_bounds, marks, information, _ = deployed
    H = work.V.shape[0] - 1
    states, places = np.empty(H + 1, dtype=np.int64), np.zeros(H + 1, dtype=np.int64)
    actions, ahead = np.empty(H, dtype=np.int64), most_transitions(slots, H)
    for k in range(start, stop):
        if marks[2]:
            replan(law, deployed, run)
        if is_full(model, ahead):
            return k
        for g in range(values.shape[1]):
            values[k, g], bounds[k, g] = own_values[g], own_bounds[g]
        sources[k], plan_ids[k] = marks[0], marks[1]
        states[0] = law.initial_state
        simulate(running, law.running, choices, transitions, states, actions)
        learn(model, slots, phi, states, actions, places, False)
        for p in range(model.log_det.shape[0]):
            if model.log_det[p] - information[p] > growth:
                marks[2] = 1
    return stop


@kernel
def replan(law, deployed, run):  # type: ignore[no-untyped-def]
    """Decide, and put the new plan in force."""
    model, _, work, _, _ = run
    table, running, values, bounds, marks, information, incumbent = deployed
    source, (H, S, A) = decide_all(run, table), table.shape
    for p in range(model.log_det.shape[0]):
        information[p] = model.log_det[p]
    for h in range(H):
        for s in range(S):
            total = 0.0
            for a in range(A):
                if source == SAFE:
                    table[h, s, a] = incumbent[h, s, a]
                total += table[h, s, a]
                running[h, s, a] = total
    bounds[0] = np.nan if source == SAFE else 0.0
    for c in range(work.lam.shape[0]):
        bounds[0] += work.lam[c]
        bounds[1 + c] = work.bound[c]
        values[0], values[1 + c] = policy_values(law.P, law.reward, law.utility[c], table, law.initial_state)
    marks[0], marks[2] = source, 0
    marks[1] += 1


class OnTrial(NamedTuple):
    """The policies on trial by row, and the mixture that is deployed.

    Attributes:
        tables, running: π and its running sums, (n, H, S, A).
        values: exact V^r and V^u, (n, 1 + m).
        lams: multipliers, (n,).
        thresholds: b, (m,).
        weights: of the deployed mixture, by row, (n,).
        rows: its rows in the order of its components, (n,); −1 after the last.
        bounds: what is proved of it, (m,).
        acted, shares, scores: memory, (1, H, n), (1, n) and (n,).
    """

    tables: Array
    running: Array
    values: Array
    lams: Array
    thresholds: Array
    weights: Array
    rows: IntArray
    bounds: Array
    acted: Array
    shares: Array
    scores: Array


@kernel
def play(law, on_trial, wealth, ranking, learner, streams, facts, draws, totals, stretch):  # type: ignore[no-untyped-def]
    """Play episodes `start` to `stop`, or until the model or the columns are full; return the first one not played.

    The second value is how many components the columns lack space for; 0 if they have it.

    Args:
        law: what the agent does not know; `law.utility` (m, H, S, A).
        on_trial: the policies on trial.
        wealth, ranking: what is proved of them, and how good they seem.
        learner: (model, slots, phi) of the proposer.
        streams: generators of actions, transitions and components.
        facts: values and bounds (K, 1+m), sources and plan ids (K,).
        draws: components (K,), weights (K, ·), and the rows that acted (K,), plus n if one was deployed alone.
        totals: reward and utilities of each episode, (K, 1+m).
        stretch: (start, stop, episodes that the certifier has seen, the id of the first plan).
    """
    (model, slots, phi), (choices, transitions, mixing), (components, weights, acting) = learner, streams, draws
    (start, stop, num_seen, first_id), (n, H, _, _) = stretch, on_trial.tables.shape
    states, places = np.empty(H + 1, dtype=np.int64), np.zeros(H + 1, dtype=np.int64)
    actions, ahead, width = np.empty(H, dtype=np.int64), most_transitions(slots, H), weights.shape[1]
    for k in range(start, stop):
        if is_full(model, ahead):
            return k, 0
        num_parts = deploy(on_trial, wealth, ranking, num_seen + k - start)
        if num_parts > max(width, 1):
            return k, num_parts
        part = 0
        if num_parts > 1:
            part = component(on_trial, num_parts, mixing.random())
        note(on_trial, facts, k, num_parts, first_id + k - start)
        row = on_trial.rows[part]
        if width > 0:
            components[k], acting[k] = part, row if num_parts > 1 else row + n
            for i in range(width):
                weights[k, i] = on_trial.weights[on_trial.rows[i]] if i < num_parts else 0.0
        states[0] = law.initial_state
        simulate(on_trial.running[row], law.running, choices, transitions, states, actions)
        account(law, on_trial, wealth, ranking, states, actions, num_parts, totals, k)
        learn(model, slots, phi, states, actions, places, False)
    return stop, 0


@kernel
def deploy(on_trial, wealth, ranking, num_episodes):  # type: ignore[no-untyped-def]
    """Put the mixture of `Trials.choose` in force, or the incumbent where it misses a limit; return its components."""
    weights, rows, b, lower, parts = on_trial.weights, on_trial.rows, on_trial.thresholds, wealth.lower, 0
    n, newest, reach = rows.shape[0], ranking.newest[0], num_episodes / EPISODES_TO_CERTIFY
    for i in range(n):
        weights[i], rows[i] = 0.0, -1
        on_trial.scores[i] = score(ranking, i) if wealth.in_use[i] == 1 else 0.0
    if b.shape[0] == 1:
        first, second, p = choose_pair(ranking, lower, wealth.in_use, 0, b[0], num_episodes)
        weights[second], rows[parts] = 1.0 - p, first
        weights[first], parts = p, 1
        if second != first:
            rows[parts], parts = second, 2
    else:
        chosen = choose_weights(on_trial.scores, newest, lower, b, wealth.in_use, 0, reach)
        for j in range(1, n + 1):
            i = j % n  # the incumbent comes last
            weights[i] = chosen[i]
            if chosen[i] > 0.0:
                rows[parts] = i
                parts += 1
    if not keeps_all(weights, lower, b):
        for i in range(n):
            weights[i], rows[i] = 0.0, -1
        weights[0], rows[0], parts = 1.0, 0, 1
    for c in range(b.shape[0]):
        on_trial.bounds[c] = mixture_bound(weights, lower, c)
    return parts


@lean_kernel
def component(on_trial, num_parts, uniform):  # type: ignore[no-untyped-def]
    """Return the component that acts: the first whose running sum of weights exceeds the uniform number."""
    total = 0.0
    for part in range(num_parts):
        total += on_trial.weights[on_trial.rows[part]]
        if total > uniform:
            return part
    return num_parts - 1


@lean_kernel
def note(on_trial, facts, k, num_parts, plan_id):  # type: ignore[no-untyped-def]
    """Write what is known of episode k before it begins."""
    rows, weights, (values, bounds, sources, plan_ids) = on_trial.rows, on_trial.weights, facts
    first, alone = rows[0], num_parts == 1 and rows[0] == 0
    for g in range(values.shape[1]):
        value = on_trial.values[first, g]
        if num_parts > 1:
            value *= weights[first]
            for part in range(1, num_parts):
                value += weights[rows[part]] * on_trial.values[rows[part], g]
        values[k, g] = value
    sources[k], plan_ids[k] = SAFE if alone else SEARCH, plan_id
    bounds[k, 0] = np.nan if alone else on_trial.lams[first]
    for c in range(on_trial.bounds.shape[0]):
        bounds[k, 1 + c] = np.nan if alone else on_trial.bounds[c]


@lean_kernel
def account(law, on_trial, wealth, ranking, states, actions, num_parts, totals, k):  # type: ignore[no-untyped-def]
    """Credit the totals of episode k to the components of its mixture, by their shares, and write them down."""
    rows, shares, reward = on_trial.rows, on_trial.shares, 0.0
    for part in range(num_parts):
        shares[0, part] = on_trial.weights[rows[part]]
    for h in range(actions.shape[0]):
        s, a = states[h], actions[h]
        reward += law.reward[h, s, a]
        for part in range(num_parts):
            on_trial.acted[0, h, part] = on_trial.tables[rows[part], h, s, a]
    if num_parts > 1:
        share_out(on_trial.acted, num_parts, shares)
    for c in range(on_trial.bounds.shape[0]):
        utility = 0.0
        for h in range(actions.shape[0]):
            utility += law.utility[c, h, states[h], actions[h]]
        totals[k, 1 + c] = utility
        for part in range(num_parts):
            i = rows[part]
            credit(wealth, i, c, shares[0, part], max(utility, wealth.least[i, c]))  # below it by rounding only
    totals[k, 0] = reward
    for part in range(num_parts):
        reward_row(ranking, rows[part], shares[0, part], reward)
