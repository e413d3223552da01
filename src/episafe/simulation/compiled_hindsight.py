"""The loop of SafeAgent with `Hindsight` on listed problems: while a plan is in force, all its episodes at once.

Planning and proposing are rare and stay in Python.
"""

from dataclasses import replace

import numpy as np

from episafe.certify.hindsight import Hindsight
from episafe.certify.replays import ListedReplays
from episafe.certify.safe_agent import SafeAgent
from episafe.certify.traces import TraceProposer
from episafe.certify.trials import Trials
from episafe.core.policy import Mixture
from episafe.core.types import Array, IntArray, Plan
from episafe.kernels.wealth import share_out
from episafe.simulation import compiled_mixture
from episafe.simulation.record import Columns
from episafe.simulation.run import play_episode
from episafe.simulation.worlds import ListedWorld


def play_episodes(world: ListedWorld, agent: SafeAgent, columns: Columns, start: int, stop: int) -> bool | None:
    """Play episodes `start` to `stop`; return False for settings that the loop does not know."""
    certifier, proposer = agent.certifier, agent.proposer
    if type(certifier) is not Hindsight:
        return compiled_mixture.play_episodes(world, agent, columns, start, stop)
    if certifier.observed.window is not None or certifier.recent is not None:
        return False
    if type(proposer) is not TraceProposer or proposer.model.signals is not None:
        return False
    if not isinstance(certifier.replays, ListedReplays) or agent.task.move is not world.problem.task.move:
        return False
    if (agent.task.least_totals > world.problem.task.least_totals).any():
        return False
    k = start
    while k < stop:
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
    return True


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
