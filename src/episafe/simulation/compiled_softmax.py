"""The compiled loop of softmax agents on a listed problem: decisions, episodes and learning in one kernel."""

from dataclasses import replace

import numpy as np

from episafe.algorithms.ghosh2022 import Ghosh2022
from episafe.algorithms.ghosh2024 import Ghosh2024
from episafe.algorithms.lsvi_ucb import LSVIUCB
from episafe.algorithms.opse import OPSE
from episafe.core.policy import TablePolicy
from episafe.core.types import SAFE, SOURCES
from episafe.kernels.loops import play_softmax
from episafe.kernels.simulation import running_sums
from episafe.linear.planner import Decision
from episafe.simulation.record import Columns
from episafe.simulation.worlds import ListedWorld

Learner = OPSE | Ghosh2024 | Ghosh2022 | LSVIUCB


def play_episodes(world: ListedWorld, agent: Learner, columns: Columns, start: int, stop: int) -> bool | None:
    """Play episodes `start` to `stop`, fill their rows, and leave the agent as the plain loop would."""
    model, k = agent.model, start
    if model.signals is not None:
        return False  # signals are observed episode by episode
    if isinstance(agent, OPSE):
        agent.constants.require_scope(agent.task, model.num_episodes + stop - start)
    streams, (plan, then) = world.streams, agent.in_force
    table, information = plan.policy.table().copy(), then[: model.num_rows].copy()
    values, bounds = world.problem.values(plan.policy).copy(), np.array([plan.lam, *plan.bounds])
    marks, incumbent = np.array([SOURCES.index(plan.source), plan.id, 0]), agent.task.incumbent.table()
    deployed = table, running_sums(table), values, bounds, marks, information, np.ascontiguousarray(incumbent)
    scales, search = agent.scales, agent.search
    while k < stop:
        # up to the next refactoring, which the plain loop makes after the same episode
        pause = min(stop, k + model.episodes_to_refactoring())
        run = model.arrays, model.slots, model.work, scales, search
        learner, two_streams = (run, model._phi, agent.replan.growth), (streams.choices, streams.transitions)
        facts = columns.values, columns.bounds, columns.sources, columns.plan_ids
        done = play_softmax(world.law, deployed, learner, two_streams, facts, k, pause)
        model.count(done - k)
        if done < pause:
            model.enlarge_transitions()
        k = done
    if isinstance(agent, LSVIUCB):
        bounds[1:] = columns.bounds[start:stop, 1:] = np.nan  # no utility is bounded
    if plan.id != marks[1]:
        policy = None if marks[0] == SAFE else TablePolicy(table)
        found = Decision(SOURCES[marks[0]], bounds[:1].copy(), bounds[1:].copy(), policy)
        plan = replace(agent.as_plan(found), id=int(marks[1]))
    agent.take_over(plan, information)
    return None
