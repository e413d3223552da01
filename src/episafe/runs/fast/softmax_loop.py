"""The compiled loop for softmax agents on a known kernel, and which settings it knows."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from episafe.kernels.episode_trace import NO_TRACE, Trace
from episafe.kernels.simulation import Law, running_sums
from episafe.kernels.softmax_loop import Deployed, play
from episafe.learning.multiplier_search import Bisection, WarmStart
from episafe.learning.planner import Decision, Doubling, Every, SoftmaxPlanner
from episafe.learning.regression import episodes_to_refactoring
from episafe.problems.policy import TablePolicy
from episafe.runs.record import Columns
from episafe.types import SOURCES


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: Trace | None) -> "SoftmaxLoop | None":
    """The loop, if it knows planner, rule and search, the planner itself certifies, steps share no data, and neither an
    incumbent phase nor another epoch of constants is to come."""
    known = (
        type(agent.learner) is SoftmaxPlanner
        and type(agent.replan) in (Every, Doubling)
        and type(agent.search) in (Bisection, WarmStart)
        and getattr(agent, "certificate", None) is None
        and not agent.task.time_homogeneous
        and agent.learner.num_learned >= getattr(agent, "num_safe_episodes", 0)
        and (agent.constants.scope is None or not agent.constants.scope.epoch)
    )
    return SoftmaxLoop(world, agent, trace) if known else None


class SoftmaxLoop:
    """A run of a softmax agent: `advance` takes it on by some episodes, `finish` hands the plan back to the agent."""

    def __init__(self, world: Any, agent: Any, trace: Trace | None) -> None:
        cmdp, task, luck = world.problem, world.problem.task, world.luck
        self._agent, self._planner, self._streams = agent, agent.learner, (luck.choices, luck.transitions)
        self._trace = NO_TRACE if trace is None else trace
        self._law = Law(cmdp.P, world.kernel, task.reward, task.constraint.utility, task.initial_state)
        # Every() is growth below zero: the information never shrinks
        self._growth = getattr(agent.replan, "growth", -math.inf)
        plan = agent.plan()
        table = plan.policy.table().copy()
        self._deployed = Deployed(
            table,
            running_sums(table),
            np.array([*cmdp.evaluate(plan.policy), plan.lam, plan.utility_bound]),
            np.array([SOURCES.index(plan.source), plan.id, 0]),
            agent.information_then.copy(),
            agent.task.safe_policy.table(),
        )
        self._first = plan

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Run episodes `start` to `stop`, filling their rows."""
        planner, regression, k = self._planner, self._planner.regression, start
        while k < stop:
            if regression.is_full():
                regression.enlarge()
            # up to the next refactoring, which the plain loop makes after the same episode
            pause = min(stop, k + episodes_to_refactoring(regression.num_episodes))
            known = regression.visited, regression.model, regression.work
            learner = *known, planner.scales, planner.search, self._growth
            done = play(self._law, self._deployed, learner, self._streams, columns.facts, self._trace, k, pause)
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
