"""Rounds of a bandit: the same steps, in the same order, as the plain loop; a test compares both bit for bit."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.bandit_decision import Room, Rule, decide
from episafe.kernels.bandit_regression import Regression, absorb
from episafe.kernels.bandit_rounds import expected, observe
from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_radius import Radius
from episafe.kernels.simulation import draw
from episafe.types import Array, IntArray

SOURCE, ID, DUE, REASON, ROUND = range(5)


class Span(NamedTuple):
    """Rounds of one block, one after another: how many, and the first one's row, round and place in the block."""

    length: int
    row: int
    round: int
    position: int


class Offer(NamedTuple):
    """The arms (n, d) and the incumbent's probabilities `safe` (n,); (m·n, d) and (m·n,), those of each round of a span
    below each other, where the arms change. On a convex set both are unused."""

    arms: Array
    safe: Array
    changes: bool


class Learner(NamedTuple):
    """What the agent knows and how it decides, `inside` the loop or not; after ln det Λ grew by `growth` once more."""

    model: Regression
    rule: Rule
    radius: Radius
    growth: float
    inside: bool
    room: Room
    policy: Array


class Deployed(NamedTuple):
    """The plan in force.

    `atoms` (m, d), `weights` (m,) and their running sums, all with room for every arm; `figures` (5,): reward and
    utility expected, λ, bound, ln det Λ when it was made; `marks` (5,) by the names above.
    """

    atoms: Array
    weights: Array
    running: Array
    figures: Array
    marks: IntArray


class RoundTrace(NamedTuple):
    """What is kept of each round, in row k mod m: the atom played, (m,), the signals seen, (m, 2), and ln det Λ when it
    was planned, (m, 1). m = 0: nothing is written."""

    atoms: NDArray[np.int32]
    signals: Array
    known: Array


def blank_rounds(room: int) -> RoundTrace:
    """Room for so many rounds."""
    return RoundTrace(np.zeros(room, dtype=np.int32), np.zeros((room, 2)), np.zeros((room, 1)))


class Columns(NamedTuple):
    """The rows of a record that are filled, `facts`, how often each reason was given, `reasons`, and the trace."""

    facts: Any
    reasons: IntArray
    trace: RoundTrace


@kernel
def play(offer, world, luck, learner, deployed, columns, span, start):  # type: ignore[no-untyped-def]
    """Rounds `start` and on of a span, or until a plan is due that is not made here; returns the first not played."""
    (facts, reasons, trace), marks, figures, model = columns, deployed.marks, deployed.figures, learner.model
    for i in range(start, span.length):
        if marks[DUE] or offer.changes:
            if not learner.inside:
                return i
            replan(offer, i, world, learner, deployed)
            marks[ROUND] = span.round + i
        row = span.row + i
        facts.values[row, 0], facts.values[row, 1] = figures[0], figures[1]
        facts.bounds[row, 0], facts.bounds[row, 1] = figures[2], figures[3]
        facts.sources[row], facts.plan_ids[row] = marks[SOURCE], marks[ID]
        reasons[marks[REASON]] += 1
        atom = draw(deployed.running, luck.choices[span.position + i])
        reward, utility = observe(world, deployed.atoms, atom, luck, span.position + i)
        if trace.atoms.shape[0] > 0:
            place = row % trace.atoms.shape[0]
            trace.atoms[place], trace.known[place, 0] = atom, figures[4]
            trace.signals[place, 0], trace.signals[place, 1] = reward, utility
        absorb(model, deployed.atoms, atom, reward, utility)
        if model.log_det[0] - figures[4] > learner.growth:
            marks[DUE] = 1
    return span.length


@kernel
def replan(offer, i, world, learner, deployed):  # type: ignore[no-untyped-def]
    """Decide for place i of a span, and put the new plan in force."""
    arms, policy, model, marks, figures = offer.arms, learner.policy, learner.model, deployed.marks, deployed.figures
    first = i * policy.shape[0] if offer.changes else 0
    source, lam, bound, reason = decide(
        arms, first, offer.safe, model, learner.rule, learner.radius, learner.room, policy
    )
    deploy(arms, first, policy, world, deployed)
    figures[2], figures[3], figures[4] = lam, bound, model.log_det[0]
    marks[SOURCE], marks[DUE], marks[REASON] = source, 0, reason
    marks[ID] += 1


@kernel
def deploy(arms, first, policy, world, deployed):  # type: ignore[no-untyped-def]
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
