"""The compiled loop of linear bandits.

With arms the whole loop is compiled, decisions included, for agents that decide by their `Rule`. On ellipsoids, and
for OPLB, it plays until a new plan is due and asks the agent.
"""

from dataclasses import replace

import numpy as np

from episafe.algorithms.bandit_agent import BanditAgent
from episafe.algorithms.bandit_peers import OFUL, OPLB, ROFUL, Incumbent, SafeLUCB
from episafe.algorithms.oplbsp import OPLBSP
from episafe.core.types import SOURCES, Array, Plan
from episafe.kernels.bandit import BLOCK, ID, REASON, SOURCE, Deployed, Law, optima, play, put_in_force
from episafe.problems.bandit import ActionPolicy, LinearBandit
from episafe.simulation.bandit_world import chance, law_of
from episafe.simulation.record import Columns
from episafe.simulation.run import CompiledLoop
from episafe.simulation.worlds import Streams


def play_rounds(
    bandit: LinearBandit, agent: BanditAgent, columns: Columns, streams: Streams, start: int, stop: int
) -> None:
    """Play rounds `start` to `stop`, fill their rows, and leave the agent as the plain loop would."""
    task, law, row = bandit.task, law_of(bandit), start
    inside = task.num_actions is not None and type(agent) is not OPLB
    plan = agent.in_force[0] if inside else agent.plan()
    arms, safe = task.arms(row), task.safe(row)
    deployed = _deployed(agent, law, arms, plan, inside)
    learner = agent.model, agent.rule, agent.radius, agent.replan.growth, inside
    while row < stop:  # spans end where blocks of chance do
        block, place = divmod(row, BLOCK)
        span, draws, done = (min(BLOCK - place, stop - row), row, place), chance(streams.seed, block, len(law.theta)), 0
        if columns.optima is not None:
            arms, safe = _stacked(bandit, range(row, row + span[0]))
            optima(law.theta, task.thresholds, arms, safe, columns.optima[row : row + span[0]])
        while done < span[0]:
            offer = (arms if inside else _policy(plan).actions, safe, task.changes)
            done = play(offer, law, draws, learner, deployed, columns.facts, span, done)
            if done < span[0]:
                agent.round = row + done
                plan = agent.plan()
                deployed = _deployed(agent, law, arms, plan, inside)
        row += span[0]
    agent.round = stop
    marks, figures = deployed.marks, deployed.figures
    if inside and (plan is None or plan.id != marks[ID]):
        facts = deployed.policy, deployed.bounds.copy(), marks[SOURCE], figures[0], marks[REASON]
        last = agent.as_plan(arms[-len(deployed.policy) :], *facts)
        agent.take_over(replace(last, id=int(marks[ID])), figures[1:])


def _policy(plan: Plan | None) -> ActionPolicy:
    assert plan is not None and isinstance(plan.policy, ActionPolicy)
    return plan.policy


def _deployed(agent: BanditAgent, law: Law, arms: Array, plan: Plan | None, inside: bool) -> Deployed:
    """Return a plan in the form of the compiled loop; a blank one that is due where there is no plan yet.

    A plan of `agent.plan()` is up to date: only where decisions are compiled may the plan in force be due.
    """
    n, m = len(arms) if plan is None else len(_policy(plan).weights), len(law.theta) - 1
    made = Deployed(np.zeros(n), np.zeros(n), np.zeros(1 + m), np.zeros(m), np.zeros(2), np.array([0, -1, 1, 0]))
    if plan is not None:
        policy, then = _policy(plan), agent.in_force[1][0]
        made.policy[:], made.bounds[:], made.figures[:] = policy.weights, plan.bounds, (plan.lam, then)
        due = inside and agent.model.log_det[0] - then > agent.replan.growth
        made.marks[:] = SOURCES.index(plan.source), plan.id, due, 0
        put_in_force(law, policy.actions, made)
    return made


def _stacked(bandit: LinearBandit, rounds: range) -> tuple[Array, Array]:
    """Return arms (K·n, d) and incumbents (K·n,) of rounds below each other, checked."""
    for k in rounds:
        bandit.check_round(k)
    return np.concatenate([bandit.task.arms(k) for k in rounds]), np.concatenate([bandit.task.safe(k) for k in rounds])


LOOPS: dict[tuple[type, type], CompiledLoop] = {
    (LinearBandit, agent): play_rounds for agent in (OPLBSP, OPLB, SafeLUCB, ROFUL, OFUL, Incumbent)
}
