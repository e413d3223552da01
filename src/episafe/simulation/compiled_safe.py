"""The compiled loops of SafeAgent on listed problems.

Episodes before which a candidate may be proposed are played by the plain loop. All others are played by
kernels/loops.py with `Observation`; with `Hindsight`, while a plan is in force, all its episodes are played at once.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from episafe.certify.hindsight import Hindsight
from episafe.certify.observation import Observation
from episafe.certify.replays import ListedReplays
from episafe.certify.safe_agent import SafeAgent
from episafe.certify.traces import TraceProposer
from episafe.certify.trials import Trials
from episafe.core.policy import Mixture, Policy
from episafe.core.types import Array, IntArray, Plan
from episafe.kernels.loops import OnTrial, play
from episafe.kernels.wealth import share_out
from episafe.linear.planner import SoftmaxProposer
from episafe.simulation.record import Columns
from episafe.simulation.run import play_episode
from episafe.simulation.worlds import ListedWorld


def play_episodes(world: ListedWorld, agent: SafeAgent, columns: Columns, start: int, stop: int) -> bool:
    """Play episodes `start` to `stop`; return False for settings that the loops do not know."""
    certifier, proposer, told, k = agent.certifier, agent.proposer, world.problem.task, start
    if not isinstance(proposer, SoftmaxProposer | TraceProposer) or proposer.model.signals is not None:
        return False
    if (agent.task.least_totals > told.least_totals).any():  # a total may void what is proved
        return False
    if type(certifier) is Observation and type(proposer) is SoftmaxProposer and columns.totals is not None:
        while k < stop and certifier.window is None:
            changes = agent.candidates or certifier.goal() is not None
            if changes or certifier.invalid_reason or any(certifier.accounts.tails) or certifier.trials.base:
                play_episode(world, agent, columns, k)
                k += 1
            else:
                ahead = min(max(certifier.episodes_to_look, 1), proposer.model.episodes_to_refactoring())
                k = _play_stretch(world, agent, certifier, proposer, columns, k, min(k + ahead, stop))
    elif type(certifier) is Hindsight and type(proposer) is TraceProposer and agent.task.move is told.move:
        blocks = certifier.observed.window is not None or certifier.recent is not None
        while k < stop and not blocks and isinstance(certifier.replays, ListedReplays):
            ahead = min(
                certifier.next_choice - certifier.num_episodes,
                certifier.next_proposal - certifier.num_traces,
                certifier.observed.episodes_to_look,
                stop - k,
            )
            waits = any(certifier.accounts.tails) or any(certifier.observed.accounts.tails)
            if ahead <= 1 or agent.candidates or waits or certifier.refuted or certifier.invalid_reason:
                play_episode(world, agent, columns, k)
                k += 1
            else:
                _play_block(world, agent, certifier, proposer, columns, k, ahead)
                k += ahead
    return k == stop


@lru_cache(maxsize=1)
def _on_trial(world: ListedWorld, lams: tuple[float, ...], *policies: Policy | None) -> OnTrial:
    """Return the policies on trial as arrays by row, with zeros in free rows; kept until they change."""
    cmdp, n, m = world.problem, len(policies), world.problem.task.num_constraints
    shape = cmdp.P.shape[:3]
    tables, running, values = np.zeros((n, *shape)), np.zeros((n, *shape)), np.zeros((n, 1 + m))
    for i, policy in enumerate(policies):
        if policy is not None:
            tables[i], running[i], values[i] = policy.table(), world.sums(policy), cmdp.values(policy)
    return OnTrial(
        tables, running, values, np.array(lams), np.zeros(m), np.zeros(n),
        np.full(n, -1), np.zeros(m), np.zeros((1, shape[0], n)), np.zeros((1, n)), np.zeros(n),
    )  # fmt: skip


def _play_stretch(
    world: ListedWorld, agent: SafeAgent, certifier: Observation, proposer: SoftmaxProposer, columns: Columns,
    start: int, stop: int,
) -> int:  # fmt: skip
    """Play a stretch in which no candidate is added; return the first episode that is not played."""
    model, trials, streams = proposer.model, certifier.trials, world.streams
    # a callback may change the thresholds
    on_trial = _on_trial(world, tuple(trials.lams), *trials.policies)._replace(thresholds=certifier.accounts.thresholds)
    facts = columns.values, columns.bounds, columns.sources, columns.plan_ids
    done, lacking = play(
        world.law, on_trial, certifier.accounts.wealth, trials.ranking, (model.arrays, model.slots, model._phi),
        (streams.choices, streams.transitions, streams.mixing),
        facts, (columns.components, columns.weights, columns.acting), columns.totals,
        (start, stop, certifier.num_episodes, agent._num_plans),
    )  # fmt: skip
    if done > start:
        model.count(done - start)
        certifier.num_episodes += done - start
        certifier.look()
        _number(columns, certifier, on_trial, start, done)
        rows = on_trial.rows[on_trial.rows >= 0].tolist()
        plan = trials.as_plan(rows, on_trial.weights[rows].tolist(), trials.lower)
        agent.adopt(plan if plan.source == "safe" else replace(plan, bounds=on_trial.bounds.copy()), done - start)
    if lacking:
        columns.widen(lacking)
    elif done < stop:
        model.enlarge_transitions()
    return int(done)


def _number(columns: Columns, certifier: Observation, on_trial: OnTrial, start: int, stop: int) -> None:
    """Turn the rows that acted into numbers of names, given out in the order in which they acted first."""
    if columns.weights.shape[1] == 0:
        return
    acting, policies = columns.acting[start:stop], certifier.trials.policies
    names = *certifier.accounts.names, *("" if policy is None else policy.name for policy in policies)
    rows, first, where = np.unique(acting, return_index=True, return_inverse=True)
    numbers = np.zeros(len(rows), dtype=np.int32)
    for j in np.argsort(first).tolist():
        numbers[j] = columns.number(names[rows[j]], on_trial.values[rows[j] % len(policies), 1:])
    acting[:] = numbers[where]


def _play_block(
    world: ListedWorld, agent: SafeAgent, certifier: Hindsight, proposer: TraceProposer,
    columns: Columns, k: int, number: int,
) -> None:  # fmt: skip
    """Play episodes that cannot change the plan, and learn from all of them."""
    first_id = agent._num_plans
    plan = certifier.plan()
    agent.adopt(plan, number)
    policies = plan.parts.components
    acting = np.zeros(number, dtype=np.int64)
    if isinstance(plan.policy, Mixture):
        acting = plan.policy.draw_many(world.streams.mixing, number)
    values, (_, first) = world.values(plan), np.unique(acting, return_index=True)
    for i in acting[np.sort(first)].tolist():  # names are numbered in the order in which they act
        own = world.values(replace(plan, policy=policies[i]))[1] if isinstance(plan.policy, Mixture) else None
        columns.note(k + np.flatnonzero(acting == i), plan, values, i, policies[i], own)
    columns.plan_ids[k : k + number] = first_id + np.arange(number)
    states, actions, chances, *signals = world.play_all(policies, acting)
    rewards, utilities = (np.cumsum(signal, axis=1)[:, -1] for signal in signals)
    if columns.totals is not None:
        columns.totals[k : k + number] = np.column_stack([rewards, utilities])
    observed, shares = certifier.observed, _shares(plan, states, actions)
    rows = np.array([observed.accounts.row(name) for name in plan.parts.names])
    rows, shares = rows[rows >= 0], np.ascontiguousarray(shares[rows >= 0])
    observed.accounts.read_log(rows, shares, np.tile(utilities, (len(rows), 1, 1)))
    _reward(observed.trials, rows, shares, np.tile(rewards, (len(rows), 1)))
    observed.num_episodes += number
    observed.look()
    rows, trials = np.array(certifier.accounts.rows), certifier.trials
    totals = certifier.totals_of(trials.listed(certifier.accounts.rows)[1], chances, range(number))
    ones = np.ones(totals.shape[:2])
    for accounts, utilities in certifier.above_floors(rows, totals[:, :, 1:]):
        accounts.read_log(rows, ones, utilities)
    _reward(trials, rows, ones, totals[:, :, 0])
    certifier.num_episodes += number
    certifier.num_traces += number
    proposer.model.observe_all(states, actions)
    proposer.take_in(chances)


def _shares(plan: Plan, states: IntArray, actions: IntArray) -> Array:
    """Return the share of each component in each episode, (n, E)."""
    E, H = actions.shape
    if not isinstance(plan.policy, Mixture):
        return np.ones((1, E))
    tables = np.stack([policy.table() for policy in plan.parts.components], axis=-1)
    shares = np.tile(plan.parts.weights, (E, 1))
    share_out(tables[np.arange(H), states[:, :H], actions], len(plan.parts.weights), shares)
    return np.ascontiguousarray(shares.T)


def _reward(trials: Trials, rows: IntArray, shares: Array, rewards: Array) -> None:
    """Add the rewards (n, E) of candidates in these rows, by their shares (n, E)."""
    for g, sums in enumerate((shares * rewards, shares)):  # one after another, as the plain loop adds them
        added = np.column_stack([trials.ranking.rewards[rows, g], sums])
        trials.ranking.rewards[rows, g] = np.cumsum(added, axis=1)[:, -1]
