"""The compiled loop of SafeAgent with `Observation` on listed problems.

Episodes before which a candidate may be proposed are played by the plain loop, all others by kernels/loops.py.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from episafe.certify.observation import Observation
from episafe.certify.safe_agent import SafeAgent
from episafe.core.policy import Policy
from episafe.kernels.loops import OnTrial, play
from episafe.linear.planner import SoftmaxProposer
from episafe.simulation.record import Columns
from episafe.simulation.run import play_episode
from episafe.simulation.worlds import ListedWorld


def play_episodes(world: ListedWorld, agent: SafeAgent, columns: Columns, start: int, stop: int) -> bool:
    """Play episodes `start` to `stop`; return False for other certifiers and proposers, and where totals may void."""
    certifier, proposer, k = agent.certifier, agent.proposer, start
    if type(certifier) is not Observation or certifier.window is not None or type(proposer) is not SoftmaxProposer:
        return False
    may_void = (agent.task.least_totals > world.problem.task.least_totals).any()
    if may_void or proposer.model.signals is not None or columns.totals is None:
        return False
    while k < stop:
        changes = agent.candidates or certifier.goal() is not None
        if changes or certifier.invalid_reason or any(certifier.accounts.tails) or certifier.trials.base:
            play_episode(world, agent, columns, k)
            k += 1
        else:
            ahead = min(max(certifier.episodes_to_look, 1), proposer.model.episodes_to_refactoring())
            k = _play_stretch(world, agent, certifier, proposer, columns, k, min(k + ahead, stop))
    return True


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
