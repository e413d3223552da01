"""The compiled loop for bandits, and which agents it knows.

For agents with a rule on finitely many arms the whole loop is compiled, the engine's decisions included. On convex
sets, and for OPLB, it runs until a new plan is due and leaves that to the agent.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from episafe.agents.bandits.oplb import OPLB
from episafe.checks import TOLERANCE, as_distributions
from episafe.errors import InvalidProblem
from episafe.kernels.bandit_decision import REASONS, room
from episafe.kernels.bandit_loop import BLOCK, DeployedMixture, RoundTrace, Span, blank_rounds, expected, optima, play
from episafe.learning.planner import Doubling, Every
from episafe.problems.bandit_actions import as_arms
from episafe.problems.bandit_policy import without_negatives
from episafe.runs.record import Columns
from episafe.types import SOURCES, Array, amounts, every_constraint


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: RoundTrace | None) -> "BanditLoop | None":
    """The loop, if it knows the agent's rule, and every round has as many arms."""
    rounds = range(world.first_round + first, world.first_round + columns.num_episodes)
    known = type(agent.replan) in (Every, Doubling) and (type(agent) is not OPLB or not agent.task.changes)
    return BanditLoop(world, agent, rounds[0], trace) if known and _is_even(world.problem, rounds) else None


class BanditLoop:
    """A run of an agent: `advance` takes it on, `finish` hands the plan in force back to the agent."""

    def __init__(self, world: Any, agent: Any, first_round: int, trace: RoundTrace | None) -> None:
        task = world.problem.task
        self._world, self._agent, self._failure = world, agent, ""
        self._trace = blank_rounds(0, task.num_constraints) if trace is None else trace
        self._num_arms = len(task.incumbent(first_round)) if task.is_finite else 0
        learner, inside = agent.learner, task.is_finite and type(agent) is not OPLB
        # Every() is growth below zero: the information never shrinks
        growth = getattr(agent.replan, "growth", -math.inf)
        m = task.num_constraints
        space, policy = room(self._num_arms, m), np.empty(self._num_arms)
        self._learner = learner.model, learner.rule, learner.radius, growth, inside, space, policy
        listed = task.is_finite and not task.changes
        self._arms: Array = task.arms(0) if listed else np.empty((0, task.dim))
        self._safe: Array = task.incumbent(0) if listed else np.empty(0)
        if task.changes:
            last_id = agent.plan_in_force.id if agent.recent_plans() else -1
            n, marks = self._num_arms, np.array([0, last_id, 1, 0, first_round])
            atoms, figures = (np.zeros((n, task.dim)), np.zeros(n), np.zeros(n)), (np.zeros(1 + m), np.zeros(m))
            self._deployed = DeployedMixture(*atoms, *figures, np.zeros(2), marks)
        else:
            self._deployed = self._deploy(agent.plan(), self._num_arms)

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Play rounds `start` to `stop`, filling their rows and counting reasons."""
        world, task = self._world, self._world.problem.task
        failed = int(world.reasons[len(REASONS)])
        for span in _spans(world.first_round, start, stop):
            arms, safe = self._arms, self._safe
            if columns.optima is not None:
                arms, safe = _stacked(world.problem, span)
                best = columns.optima[span.row : span.row + span.length]
                optima(world.law.theta, task.thresholds, arms, safe, best)
            offer, kept = (arms, safe, task.changes), (columns.facts, world.reasons, self._trace)
            luck, done = world.chance(span.round // BLOCK), 0
            while done < span.length:
                done = play(offer, world.law, luck, self._learner, self._deployed, kept, span, done)
                if done < span.length:
                    self.finish()
                    self._deployed = self._deploy(self._agent.plan(), 0)
        if failed < world.reasons[len(REASONS)]:
            columns.fail(int(world.reasons[len(REASONS)]) - failed, self._failure)

    def _deploy(self, plan: Any, num_arms: int) -> DeployedMixture:
        self._failure = plan.reason if plan.failed else self._failure
        size = max(num_arms, len(plan.probabilities))
        atoms, weights, running = np.zeros((size, self._agent.task.dim)), np.zeros(size), np.zeros(size)
        atoms[: len(plan.atoms)], weights[: len(plan.atoms)] = plan.atoms, plan.probabilities
        running[:] = np.cumsum(weights)
        theta = self._world.law.theta
        values = np.array([expected(theta, which, atoms, weights) for which in range(len(theta))])
        bounds = amounts(every_constraint(plan.utility_bound, len(values) - 1)).copy()
        figures = np.array([plan.lam, self._agent.information_then[0]])
        reason = REASONS.index(plan.reason) if plan.reason in REASONS else len(REASONS)
        marks = [SOURCES.index(plan.source), plan.id, 0, reason, self._agent.round]
        return DeployedMixture(atoms, weights, running, values, bounds, figures, np.array(marks))

    def finish(self) -> None:
        """Hand the plan in force back to the agent."""
        deployed, agent = self._deployed, self._agent
        source, plan_id, _, reason, round = deployed.marks.tolist()
        plan = agent.plan_in_force if agent.recent_plans() else None
        if plan is None or plan_id != plan.id:
            decision = (source, float(deployed.figures[0]), deployed.bounds.copy(), reason)
            plan = agent.learner.as_plan(deployed.atoms, deployed.weights, decision, plan_id)
        agent.adopt(plan, deployed.figures[1:], round)


def _spans(first_round: int, start: int, stop: int) -> Iterator[Span]:
    """Rounds cut where blocks of luck end."""
    row = start
    while row < stop:
        round = first_round + row
        length = min(BLOCK - round % BLOCK, stop - row)
        yield Span(length, row, round, round % BLOCK)
        row += length


def _stacked(bandit: Any, span: Span) -> tuple[Array, Array]:
    """Arms (m·n, d) and incumbents (m·n,) of the rounds of a span, checked."""
    rounds, task = range(span.round, span.round + span.length), bandit.task
    try:
        arms = as_arms("actions", np.concatenate([task.actions(k) for k in rounds]), task.dim)
        safe = np.array([task.safe_policy(k) for k in rounds])
        safe = without_negatives(as_distributions("safe_policy", safe, (len(rounds), len(arms) // len(rounds))))
        for theta, b, slack in zip(
            np.atleast_2d(bandit.theta_u), task.thresholds, task.told_slacks("a bandit"), strict=True
        ):
            utilities = (safe * (arms @ theta).reshape(safe.shape)).sum(axis=1)
            if (utilities < b + slack - TOLERANCE).any():
                raise InvalidProblem("some round has an incumbent without the slack")
        if bandit.clicks and np.abs(arms @ bandit.theta_r - 0.5).max() > 0.5 + TOLERANCE:
            raise InvalidProblem("some round has clicks with a mean outside [0, 1]")
    except ValueError:
        for k in rounds:
            bandit.check_round(k)  # finds the round and says what is wrong with it
    return arms, safe.ravel()


def _is_even(bandit: Any, rounds: range) -> bool:
    """Whether every round has as many arms, as the compiled loop needs."""
    actions = bandit.task.actions
    return not bandit.task.changes or len({len(actions(k)) for k in rounds}) == 1
