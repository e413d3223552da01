"""The loop for softmax agents on a known kernel, compiled: the same steps, in the same order, as the plain loop.

Deciding, learning, simulating and evaluating are the functions that the plain loop calls; a test compares the records
of both bit for bit.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from episafe.agents.softmax_agent import SOURCES, SoftmaxAgent
from episafe.kernels.compilation import kernel
from episafe.kernels.decision import SAFE, decide
from episafe.kernels.model_update import absorb, enter, is_full
from episafe.kernels.simulation import Streams, running_sums, simulate
from episafe.kernels.softmax_actions import policy_table
from episafe.learning.multiplier_search import Bisection, WarmStart
from episafe.learning.planner import Decision
from episafe.learning.regression import FiniteRegression, episodes_to_refactoring
from episafe.learning.replanning import Doubling, Every
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.exact import policy_values
from episafe.problems.policy import TablePolicy
from episafe.runs.columns import Facts
from episafe.runs.tape import Trace, write_down
from episafe.types import Array, IntArray

CODES = {source: code for code, source in SOURCES.items()}


class World(NamedTuple):
    """What the loop knows and the agent does not: `P` (H, S, A, S), its running sums, r, u (H, S, A), s₁ and π_sf."""

    P: Array
    running: Array
    reward: Array
    utility: Array
    initial_state: int
    safe_table: Array


class Deployed(NamedTuple):
    """The plan in force.

    `table` (H, S, A) and its running sums; `figures` (4,): V^r, V^u, λ, bound; `marks` (3,): source, id, and whether a
    new plan is due; `log_det` (H,): ln det Λ_h when it was made.
    """

    table: Array
    running: Array
    figures: Array
    marks: IntArray
    log_det: Array


def can_compile(agent: SoftmaxAgent) -> bool:
    """Whether this loop knows the agent's rule, search and regression, the planner certifies, the agent explores, and
    neither an incumbent phase nor another epoch of constants is to come."""
    known = isinstance(agent.replan, Every | Doubling) and isinstance(agent.search, Bisection | WarmStart)
    return (
        known
        and not agent.halted
        and not agent.task.time_homogeneous
        and getattr(agent, "certificate", None) is None
        and agent.num_learned >= agent.num_safe_episodes
        and (agent.constants.scope is None or not agent.constants.scope.epoch)
    )


class CompiledRun:
    """A run of a softmax agent: `advance` takes it on by some episodes, `finish` hands the plan back to the agent."""

    def __init__(self, cmdp: LinearCMDP, agent: SoftmaxAgent, streams: Streams, trace: Trace | None = None) -> None:
        task, regression = cmdp.task, agent.planner.regression
        assert isinstance(regression, FiniteRegression)
        self._agent, self._regression, self._streams = agent, regression, streams
        self._trace = trace
        safe_table = agent.task.safe_policy.table()
        self._world = World(cmdp.P, running_sums(cmdp.P), task.reward, task.utility, task.initial_state, safe_table)
        # Every() is growth below zero: the information never shrinks
        self._growth = agent.replan.growth if isinstance(agent.replan, Doubling) else -math.inf
        plan = agent.plan()
        table = plan.policy.table().copy()
        self._deployed = Deployed(
            table,
            running_sums(table),
            np.array([*cmdp.evaluate(plan.policy), plan.lam, plan.utility_bound]),
            np.array([CODES[plan.source], plan.id, 0]),
            agent.information_then.copy(),
        )
        self._first = plan

    def advance(self, facts: Facts, start: int, stop: int) -> None:
        """Run episodes `start` to `stop`, filling their rows."""
        regression, planner, k = self._regression, self._agent.planner, start
        while k < stop:
            if regression.is_full():
                regression.enlarge()
            # up to the next refactoring, which the plain loop makes after the same episode
            pause = min(stop, k + episodes_to_refactoring(regression.num_episodes))
            done = _play(
                self._world, self._deployed, regression.known, regression.slot_of, regression.state_of,
                regression.support, regression.phi, regression.model, regression.work, planner.scales, planner.search,
                self._growth, *self._streams, facts, self._trace, k, pause,
            )  # fmt: skip
            regression.count(done - k)
            k = done

    def finish(self) -> None:
        """Hand the plan in force back to the agent."""
        deployed = self._deployed
        source, plan_id, _ = deployed.marks.tolist()
        plan = self._first
        if plan_id != plan.id:
            decision = Decision(source, *deployed.figures[2:].tolist())
            plan = replace(self._agent.as_plan(decision, TablePolicy(deployed.table)), id=plan_id)
        self._agent.adopt(plan, deployed.log_det)


@kernel
def _play(  # type: ignore[no-untyped-def]
    world, deployed, known, slot_of, state_of, support, phi, model, work, scales, search, growth,
    choices, transitions, facts, trace, start, stop,
):  # fmt: skip
    """Episodes `start` to `stop`, or until the arrays are full; returns the first episode not made.

    `trace` may be None, for nothing to be written down: that is another compiled loop.
    """
    H, _, n = work.bonus.shape
    states, actions, slots = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), np.empty(H, dtype=np.int64)
    for k in range(start, stop):
        if is_full(model, support.size, n):
            return k
        if deployed.marks[2]:
            _replan(world, deployed, known, state_of, support, model, work, scales, search)
        facts.values[k, 0], facts.values[k, 1] = deployed.figures[0], deployed.figures[1]
        facts.bounds[k, 0], facts.bounds[k, 1] = deployed.figures[2], deployed.figures[3]
        facts.sources[k], facts.plan_ids[k] = deployed.marks[0], deployed.marks[1]
        states[0] = world.initial_state
        simulate(deployed.running, world.running, choices, transitions, states, actions)
        if trace is not None:
            write_down(trace, k, states, actions, deployed.log_det)
        enter(known, slot_of, state_of, support, phi, states, slots)
        absorb(model, slots, actions)
        for h in range(H):
            if model.log_det[h] - deployed.log_det[h] > growth:
                deployed.marks[2] = 1
    return stop


@kernel
def _replan(world, deployed, known, state_of, support, model, work, scales, search):  # type: ignore[no-untyped-def]
    """Decide, and put the new plan in force."""
    source, lam, bound = decide(model, support, work, scales, search)
    if source != SAFE:
        policy_table(model, known, state_of, support.size, work, scales, lam, deployed.table)
    H, S, A = deployed.table.shape
    for h in range(H):
        deployed.log_det[h] = model.log_det[h]
        for s in range(S):
            total = 0.0
            for a in range(A):
                if source == SAFE:
                    deployed.table[h, s, a] = world.safe_table[h, s, a]
                total += deployed.table[h, s, a]
                deployed.running[h, s, a] = total
    V_r, V_u = policy_values(world.P, world.reward, world.utility, deployed.table, world.initial_state)
    deployed.figures[0], deployed.figures[1], deployed.figures[2], deployed.figures[3] = V_r, V_u, lam, bound
    deployed.marks[0], deployed.marks[2] = source, 0
    deployed.marks[1] += 1
