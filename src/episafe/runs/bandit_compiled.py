"""Rounds in compiled code: the same steps, in the same order, as the plain loop; a test compares both bit for bit.

For rule agents on finitely many arms the whole loop is compiled, the engine's decisions included. Elsewhere it runs
until a new plan is due and leaves that to the agent.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.agents.bandits.base import BanditAgent, BanditPlan
from episafe.agents.bandits.rule_agent import SOURCES, RuleAgent
from episafe.kernels.bandit_decision import REASONS, Rule, decide, room
from episafe.kernels.bandit_regression import absorb
from episafe.kernels.bandit_rounds import Luck, World, expected, observe
from episafe.kernels.compilation import kernel
from episafe.kernels.simulation import draw
from episafe.learning.replanning import Doubling, Every
from episafe.runs.columns import Facts
from episafe.types import Array, IntArray

NO_RULE = Rule(math.nan, math.nan, math.nan)  # where plans are not made in here
OTHER = len(REASONS)  # a reason that the engine does not know: planning failed
HALTED = OTHER + 1
SOURCE, ID, DUE, REASON, ROUND, COUNT_THEN = range(6)


class Span(NamedTuple):
    """Rounds of one block, one after another: how many, and the first one's row, round and place in the block."""

    length: int
    row: int
    round: int
    position: int


class Deployed(NamedTuple):
    """The plan in force.

    `atoms` (m, d), `weights` (m,) and their running sums, all with room for every arm; `figures` (5,): reward and
    utility expected, λ, bound, ln det Λ when it was made; `marks` (6,) by the names above.
    """

    atoms: Array
    weights: Array
    running: Array
    figures: Array
    marks: IntArray


def can_compile(agent: object) -> bool:
    """Whether this loop knows how the agent learns and its replanning rule, and the agent explores."""
    if not isinstance(agent, BanditAgent) or type(agent).learn is not BanditAgent.learn or agent.halted:
        return False
    plans_inside = isinstance(agent, RuleAgent) or not agent.task.changes
    return plans_inside and isinstance(agent.replan, Every | Doubling)


class CompiledRun:
    """A run of an agent: `advance` takes it on, `finish` hands the plan in force back to the agent."""

    def __init__(self, world: World, agent: BanditAgent, num_arms: int, first_round: int) -> None:
        self._world, self._agent = world, agent
        self._inside = isinstance(agent, RuleAgent) and agent.task.is_finite
        self._rule = agent.rule if isinstance(agent, RuleAgent) else NO_RULE
        # Every() is growth below zero: the information never shrinks
        self._growth = agent.replan.growth if isinstance(agent.replan, Doubling) else -math.inf
        self._room = room(num_arms)
        self._policy = np.empty(num_arms)
        self._changes = agent.task.changes
        if self._changes:
            dim = agent.task.dim
            marks = np.array([0, agent.last_id, 1, 0, first_round, -1])
            self._deployed = Deployed(
                np.zeros((num_arms, dim)), np.zeros(num_arms), np.zeros(num_arms), np.zeros(5), marks
            )
        else:
            self._deployed = self._deploy(agent.plan(), num_arms)

    def advance(self, arms: Array, safe: Array, luck: Luck, facts: Facts, reasons: IntArray, span: Span) -> None:
        """Play the rounds of a span, filling their rows of `facts` and counting `reasons`.

        Args:
            arms: (n, d), or (m·n, d) with those of each round of the span below each other; unused on a convex set.
            safe: (n,) or (m·n,), the incumbent likewise.
        """
        agent, done = self._agent, 0
        while done < span.length:
            done = _play(
                arms, safe, self._world, luck, agent.model, self._rule, agent.radius, self._growth, self._changes,
                self._inside, self._room, self._policy, self._deployed, facts, reasons, span, done,
            )  # fmt: skip
            if done < span.length:
                self._deployed = self._deploy(agent.plan(), 0)

    def _deploy(self, plan: BanditPlan, num_arms: int) -> Deployed:
        size = max(num_arms, len(plan.probabilities))
        atoms, weights, running = np.zeros((size, self._agent.task.dim)), np.zeros(size), np.zeros(size)
        atoms[: len(plan.atoms)], weights[: len(plan.atoms)] = plan.atoms, plan.probabilities
        running[:] = np.cumsum(weights)
        values = (expected(self._world.theta, which, atoms, weights) for which in range(2))
        figures = np.array([*values, plan.lam, plan.utility_bound, self._agent.information_then[0]])
        reason = REASONS.index(plan.reason) if plan.reason in REASONS else OTHER
        marks = [SOURCES.index(plan.source), plan.id, 0, reason, *self._agent.made_at]
        return Deployed(atoms, weights, running, figures, np.array(marks))

    def finish(self) -> None:
        """Hand the plan in force back to the agent."""
        deployed, agent = self._deployed, self._agent
        source, plan_id, _, reason, round, count_then = deployed.marks.tolist()
        if plan_id != agent.last_id:
            decision = (source, float(deployed.figures[2]), float(deployed.figures[3]), reason)
            assert isinstance(agent, RuleAgent)
            plan = agent.as_plan(deployed.atoms, deployed.weights, decision, plan_id)
            agent.adopt(plan, round, count_then, deployed.figures[4:])


@kernel
def _play(  # type: ignore[no-untyped-def]
    arms, safe, world, luck, model, rule, radius, growth, changes, inside, room, policy, deployed, facts, reasons,
    span, start,
):  # fmt: skip
    """Rounds `start` and on of a span, or until a plan is due that is not made here; returns the first not played."""
    marks, figures = deployed.marks, deployed.figures
    for i in range(start, span.length):
        if marks[DUE] or changes:
            if not inside:
                return i
            first = i * policy.shape[0] if changes else 0
            source, lam, bound, reason = decide(arms, first, safe, model, rule, radius, room, policy)
            _put(arms, first, policy, world, deployed)
            figures[2], figures[3], figures[4] = lam, bound, model.log_det[0]
            marks[SOURCE], marks[DUE], marks[REASON] = source, 0, reason
            marks[ROUND], marks[COUNT_THEN] = span.round + i, model.seen[0]
            marks[ID] += 1
        row = span.row + i
        facts.values[row, 0], facts.values[row, 1] = figures[0], figures[1]
        facts.bounds[row, 0], facts.bounds[row, 1] = figures[2], figures[3]
        facts.sources[row], facts.plan_ids[row] = marks[SOURCE], marks[ID]
        reasons[marks[REASON]] += 1
        atom = draw(deployed.running, luck.choices[span.position + i])
        reward, utility = observe(world, deployed.atoms, atom, luck, span.position + i)
        absorb(model, deployed.atoms, atom, reward, utility)
        if model.log_det[0] - figures[4] > growth:
            marks[DUE] = 1
    return span.length


@kernel
def _put(arms, first, policy, world, deployed):  # type: ignore[no-untyped-def]
    """Deploy a policy over arms: those it plays become the atoms."""
    size, total = 0, 0.0
    for i in range(policy.shape[0]):
        if policy[i] > 0.0:
            total += policy[i]
            deployed.weights[size], deployed.running[size] = policy[i], total
            for j in range(arms.shape[1]):
                deployed.atoms[size, j] = arms[first + i, j]
            size += 1
    for i in range(size, deployed.weights.shape[0]):
        deployed.weights[i], deployed.running[i] = 0.0, total
    for which in range(2):
        deployed.figures[which] = expected(world.theta, which, deployed.atoms, deployed.weights)
