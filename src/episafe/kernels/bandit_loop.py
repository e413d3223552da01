"""Rounds of a bandit: the world, as the plain loop and the compiled one see it, and the compiled loop.

Its steps are the same, in the same order, as those of the plain loop; a test compares both bit for bit.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.arm_mixtures import best_over_arms, envelope, over_policy
from episafe.kernels.bandit_decision import decide
from episafe.kernels.bandit_regression import absorb, mean
from episafe.kernels.compilation import kernel
from episafe.kernels.mixing import mixed
from episafe.kernels.simulation import draw
from episafe.types import Array, IntArray

BLOCK = 1_024  # rounds whose noise is drawn together: a run can then begin at any round
SOURCE, ID, DUE, REASON, ROUND = range(5)  # what a plan is marked with


class BanditLaw(NamedTuple):
    """`theta` (1 + m, d): θ_r and every θ_u; the noise R; whether rewards are clicks."""

    theta: Array
    noise: float
    clicks: bool


def luck(seed: int, block: int, num_signals: int = 2) -> tuple[Array, Array]:
    """The luck of a block, choices (BLOCK,) uniform, noise (BLOCK, 1 + m) normal; by the seed and its number alone."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
    return rng.random(BLOCK), rng.standard_normal((BLOCK, num_signals))


@kernel
def expected(theta, which, actions, probabilities):  # type: ignore[no-untyped-def]
    """E[θᵀa] of the atoms with their probabilities, θ = theta[which]."""
    total = 0.0
    for i in range(probabilities.shape[0]):
        if probabilities[i] > 0.0:
            total += probabilities[i] * mean(theta, which, actions, i)
    return total


@kernel
def observe(world, actions, row, noise, position, signals):  # type: ignore[no-untyped-def]
    """Into `signals` (1, 1 + m): what is seen when `actions[row]` is played, with the `noise` of a block."""
    for g in range(world.theta.shape[0]):
        signals[0, g] = mean(world.theta, g, actions, row) + world.noise * noise[position, g]
    if world.clicks:
        rate = mean(world.theta, 0, actions, row)
        signals[0, 0] = 1.0 if 0.5 * math.erfc(-noise[position, 0] / math.sqrt(2.0)) < rate else 0.0


@kernel
def optima(theta, thresholds, arms, safe, found):  # type: ignore[no-untyped-def]
    """Fills `found` (K,) with the optimum of each round; NaN where no arm is safe.

    Arms (K·n, d) and incumbents (K·n,) are stacked.
    """
    n, m = safe.shape[0] // found.shape[0], thresholds.shape[0]
    f, g, policy, order = np.empty(n), np.empty((m, n)), np.empty(n), np.empty(n, dtype=np.int64)
    for k in range(found.shape[0]):
        for i in range(n):
            f[i] = mean(theta, 0, arms, k * n + i)
            for c in range(m):
                g[c, i] = mean(theta, 1 + c, arms, k * n + i)
        if m == 1:
            low, high, share, _ = envelope(f, g[0], thresholds[0], order)
            found[k] = np.nan if high < 0 else mixed(f[low], f[high], share)
        else:
            lam = best_over_arms(f, g, thresholds, safe, k * n, policy)
            found[k] = np.nan if math.isnan(lam) else over_policy(policy, f)


class Span(NamedTuple):
    """Rounds of one block, one after another: how many, and the first one's row, round and place in the block."""

    length: int
    row: int
    round: int
    position: int


class DeployedMixture(NamedTuple):
    """The plan in force.

    `atoms` (n, d), `weights` (n,) and their running sums, all with room for every arm; `values` (1 + m,): reward and
    utilities expected; `bounds` (m,); `figures` (2,): λ, and ln det Λ when it was made; `marks` (5,) by the names
    above.
    """

    atoms: Array
    weights: Array
    running: Array
    values: Array
    bounds: Array
    figures: Array
    marks: IntArray


class RoundTrace(NamedTuple):
    """What is kept of each round, in row k mod n: the atom played, (n,), the signals seen, (n, 1 + m), and ln det Λ
    when it was planned, (n, 1). n = 0: nothing is written."""

    atoms: NDArray[np.int32]
    signals: Array
    known: Array


def blank_rounds(room: int, num_constraints: int = 1) -> RoundTrace:
    """Room for so many rounds."""
    return RoundTrace(np.zeros(room, dtype=np.int32), np.zeros((room, 1 + num_constraints)), np.zeros((room, 1)))


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
    values, bounds, signals = deployed.values, deployed.bounds, np.empty((1, deployed.values.shape[0]))
    for i in range(start, span.length):
        if marks[DUE] or offer[2]:
            if not inside:
                return i
            replan(offer, i, world, learner, deployed)
            marks[ROUND] = span.round + i
        row = span.row + i
        facts.values[row, 0], facts.bounds[row, 0] = values[0], figures[0]
        for c in range(bounds.shape[0]):
            facts.values[row, 1 + c], facts.bounds[row, 1 + c] = values[1 + c], bounds[c]
        facts.sources[row], facts.plan_ids[row] = marks[SOURCE], marks[ID]
        reasons[marks[REASON]] += 1
        atom = draw(deployed.running, choices[span.position + i])
        observe(world, deployed.atoms, atom, noise, span.position + i, signals)
        if trace.atoms.shape[0] > 0:
            place = row % trace.atoms.shape[0]
            trace.atoms[place], trace.known[place, 0] = atom, figures[1]
            for g in range(signals.shape[1]):
                trace.signals[place, g] = signals[0, g]
        absorb(model, deployed.atoms, atom, signals, 0)
        if model.log_det[0] - figures[1] > growth:
            marks[DUE] = 1
    return span.length


@kernel
def replan(offer, i, world, learner, deployed):  # type: ignore[no-untyped-def]
    """Decide for place i of a span, and put the new plan in force."""
    (arms, safe, changes), marks, figures = offer, deployed.marks, deployed.figures
    model, rule, radius, _, _, room, policy = learner
    first = i * policy.shape[0] if changes else 0
    source, lam, reason = decide((arms, first, safe), model, rule, radius, room, policy, deployed.bounds)
    deploy(arms, first, policy, world, deployed)
    figures[0], figures[1] = lam, model.log_det[0]
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
    for which in range(deployed.values.shape[0]):
        deployed.values[which] = expected(world.theta, which, deployed.atoms, deployed.weights)
