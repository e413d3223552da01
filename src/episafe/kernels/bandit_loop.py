"""Rounds of a bandit: the same steps, in the same order, as the plain loop; a test compares both bit for bit."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.bandit_decision import decide
from episafe.kernels.bandit_regression import absorb
from episafe.kernels.bandit_rounds import expected, observe
from episafe.kernels.compilation import kernel
from episafe.kernels.simulation import draw
from episafe.types import Array, IntArray

SOURCE, ID, DUE, REASON, ROUND = range(5)


class Span(NamedTuple):
    """Rounds of one block, one after another: how many, and the first one's row, round and place in the block."""

    length: int
    row: int
    round: int
    position: int


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


@kernel
def play(offer, world, luck, learner, deployed, columns, span, start):  # type: ignore[no-untyped-def]
    """Rounds `start` and on of a span, or until a plan is due that is not made here; returns the first not played.

    `offer`: the arms (n, d), the incumbent's probabilities (n,), and whether they change: then those of each round of
    the span are below each other, (m·n, d) and (m·n,). On a convex set both are unused.
    `learner`: model, rule, radius; the growth of ln det Λ after which to decide again; whether that is done here; the
    room and the policy (n,) to do it in. `columns`: the facts of a record, how often each reason was given, the trace.
    """
    (facts, reasons, trace), marks, figures = columns, deployed.marks, deployed.figures
    (model, _, _, growth, inside, _, _), (choices, noise) = learner, luck
    for i in range(start, span.length):
        if marks[DUE] or offer[2]:
            if not inside:
                return i
            replan(offer, i, world, learner, deployed)
            marks[ROUND] = span.round + i
        row = span.row + i
        facts.values[row, 0], facts.values[row, 1] = figures[0], figures[1]
        facts.bounds[row, 0], facts.bounds[row, 1] = figures[2], figures[3]
        facts.sources[row], facts.plan_ids[row] = marks[SOURCE], marks[ID]
        reasons[marks[REASON]] += 1
        atom = draw(deployed.running, choices[span.position + i])
        reward, utility = observe(world, deployed.atoms, atom, noise, span.position + i)
        if trace.atoms.shape[0] > 0:
            place = row % trace.atoms.shape[0]
            trace.atoms[place], trace.known[place, 0] = atom, figures[4]
            trace.signals[place, 0], trace.signals[place, 1] = reward, utility
        absorb(model, deployed.atoms, atom, reward, utility)
        if model.log_det[0] - figures[4] > growth:
            marks[DUE] = 1
    return span.length


@kernel
def replan(offer, i, world, learner, deployed):  # type: ignore[no-untyped-def]
    """Decide for place i of a span, and put the new plan in force."""
    (arms, safe, changes), marks, figures = offer, deployed.marks, deployed.figures
    model, rule, radius, _, _, room, policy = learner
    first = i * policy.shape[0] if changes else 0
    source, lam, bound, reason = decide(arms, first, safe, model, rule, radius, room, policy)
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
