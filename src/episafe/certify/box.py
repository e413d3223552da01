"""A certificate for all policies at once: a confidence box for the transition kernel, valid at all times.

With probability 1 − δ the true kernel is in the box, in all episodes together. So the least utility of a policy over
the box is below its true utility, for every policy, however it was found: candidates, mixtures and plans cost no δ.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from episafe.core.agent import Candidate, Certifier, Evidence, promise
from episafe.core.checks import TOLERANCE, as_probability, require
from episafe.core.errors import InvalidEpisode
from episafe.core.policy import Mixture, TablePolicy
from episafe.core.task import Constraint, Task
from episafe.core.types import INCUMBENT, Array, Episode, Plan, Settings
from episafe.kernels.tabular import tighten
from episafe.kernels.tabular_optimum import BestMixture, Bounded, BoxProblem, Parts, markov_policy, occupancy, passes
from episafe.linear.counts import known_signals, needs_tables

GROWTH = 1.1  # of the number of episodes between plans: about 80 plans in 10⁴ episodes
HALVINGS = 12  # of the share of the safer policy: to 2.4e-4

ASSUMES = (
    "the listed states are Markov from a fixed start; steps have the same kernel where the task says so; its utility "
    "is true; episodes are independent, without drift; the incumbent's expected utility is at least threshold + slack; "
    "reports are true, and may be late or lost"
)


class Box(Certifier):
    """Every deployed policy has expected utility at least b, in all episodes at once, with probability 1 − delta.

    It assumes that the states are listed and Markov, with a fixed first state, and that the utility is known. Steps
    have the same kernel if the task says so. Episodes are independent given the policy, without drift. The incumbent
    has V^u ≥ b + slack. Nothing is assumed about features. The box is about the kernel, so several limits cost no more
    δ than one.

    As soon as the box proves any policy safe, a Markov policy that is safe by itself is deployed. Before that a mixture
    of candidates and the incumbent is deployed, and the promise is about the mixture. Box needs no proposer.

    Reports may be late or lost: a report is used when all deployments before its own are reported.

    Args:
        delta: the probability with which some deployed policy may be below b.

    Attributes:
        counts: how often (h, s, a) led to s', (steps, S, A, S); steps is 1 if the kernel is the same at all steps.
        lower, upper: the box, which never grows.
    """

    name: ClassVar[str] = "box"

    def __init__(self, delta: float = 0.05) -> None:
        self.delta = as_probability("delta", delta)

    def start(self, task: Task) -> None:
        """Begin with the box of all kernels."""
        reason = needs_tables(task)
        require(not reason, f"Box cannot certify this task: {reason}; use es.certify.Observation instead")
        super().start(task)
        self._signals = known_signals(task)
        _, H, S, A = self._signals.shape
        self._num_counted = H if task.time_homogeneous else H - 1  # the last step leads nowhere
        steps = 1 if task.time_homogeneous else max(self._num_counted, 1)
        self.counts: Array = np.zeros((steps, S, A, S))
        self.lower: Array = np.zeros(self.counts.shape)
        self.upper: Array = np.ones(self.counts.shape)
        task.slacks  # noqa: B018  # raises if one is unknown
        self.num_episodes, self.num_plans, self.next_plan = 0, 1, 1
        self._waiting: dict[int, Episode | None] = {}  # deployments in their order; None while there is no report
        self._ended = False  # after a deployment that is abandoned no later report is used
        self._candidates: dict[str, Array] = {}
        self._plan: Plan | None = None

    def settings(self) -> Settings:
        """Return the certifier, its delta and the statement."""
        return promise(self.name, self.delta, ASSUMES, "policy or mixture")

    # candidates, limits

    def add(self, candidate: Candidate) -> None:
        """Add a policy that may be deployed when it is the best one; it costs no δ."""
        self._candidates[candidate.name] = candidate.policy.table()
        self._plan_again()

    def withdraw(self, name: str) -> None:
        """Remove a candidate."""
        self.require_on_trial(name)
        del self._candidates[name]
        self._plan_again()

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other thresholds and slacks from now on; the box does not depend on them."""
        self.task = replace(self.task, constraints=tuple(constraints))
        self._plan_again()

    def void(self, reason: str) -> None:
        """Deploy the incumbent alone from now on."""
        super().void(reason)
        self._plan_again()

    def _plan_again(self) -> None:
        """Make a new plan next time, with new names for its policies."""
        if self._plan is not None or self.num_episodes:
            self.num_plans += 1
        self._plan = None

    @property
    def _problem(self) -> BoxProblem:
        return BoxProblem(self._signals, self.lower, self.upper, self.task.initial_state)

    def bounds(self) -> dict[str, Array]:
        """Return the bounds of the incumbent and of the candidates; (m,) each."""
        tables = {INCUMBENT: self.task.incumbent.table()} | self._candidates
        proved = {name: self._problem.bounds(table).utilities for name, table in tables.items()}
        return proved | {INCUMBENT: np.maximum(self.task.stated_utilities, proved[INCUMBENT])}

    def proves(self, plan: Plan) -> Array:
        """Return the bounds (m,) that the box proves for any plan."""
        if plan.source == "safe":
            return self.task.stated_utilities
        problem, parts = self._problem, plan.parts
        proved = [
            self.task.stated_utilities if name == INCUMBENT else problem.bounds(one.table()).utilities
            for name, one in zip(parts.names, parts.components, strict=True)
        ]
        return np.add.reduce([w * bounds for w, bounds in zip(parts.weights.tolist(), proved, strict=True)])

    # reports

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Expect the report of a deployment."""
        if not self._ended:
            self._waiting[deployment] = None

    def abandoned(self, deployment: int) -> None:
        """From now on, ignore the reports of later deployments."""
        if deployment in self._waiting:
            self._ended, numbers = True, list(self._waiting)
            for number in numbers[numbers.index(deployment) :]:
                del self._waiting[number]

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the episode itself; raise InvalidEpisode if it contradicts the task or was reported before."""
        if self._waiting[deployment] is not None if deployment in self._waiting else not self._ended:
            raise InvalidEpisode(f"deployment {deployment} is unknown or was reported before: report each once")
        return transitions("Box", self.task, episode)

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Count the transitions of the episodes that are in order now, up to the oldest deployment without a report.

        So the choice and the order of the reports that are used do not depend on their content. The first report of a
        deployment is binding.
        """
        if deployment in self._waiting and self._waiting[deployment] is None:
            self._waiting[deployment] = evidence.episode
        for number, episode in list(self._waiting.items()):
            if episode is None:
                break
            del self._waiting[number]
            h = np.arange(self._num_counted)
            rows = np.minimum(h, len(self.counts) - 1), episode.states[h], episode.actions[h], episode.states[h + 1]
            np.add.at(self.counts, rows, 1.0)
            self.num_episodes += 1
            if self.num_episodes >= self.next_plan:
                self._tighten()

    def _tighten(self) -> None:
        """Shrink the box with all transitions so far, each time there are 10 % more episodes; then plan again."""
        tighten(self.counts, math.log(self.counts.size / self.delta), self.lower, self.upper)
        self.next_plan = max(self.num_episodes + 1, math.ceil(GROWTH * self.num_episodes))
        if self._is_empty():
            super().void("no kernel fits the observed transitions: episodes are not independent, or the system drifts")
        self._plan_again()

    # plans

    def plan(self) -> Plan:
        """Return the best plan that the box allows."""
        if self._plan is None:
            self._plan = self.fallback(self.invalid_reason) if self.invalid_reason else self._best_plan()
        return self._plan

    def _is_empty(self) -> bool:
        """Return whether the box contains no kernel, up to rounding."""
        sums = self.lower.sum(axis=-1) > 1 + TOLERANCE, self.upper.sum(axis=-1) < 1 - TOLERANCE
        return bool((self.lower > self.upper).any() or sums[0].any() or sums[1].any())

    def _best_plan(self) -> Plan:
        """Return a Markov policy that the box proves safe; if there is none, a mixture with the incumbent."""
        b, problem = self.task.thresholds, self._problem
        incumbent, *others = map(problem.bounds, (self.task.incumbent.table(), *self._candidates.values()))
        found = problem.best_mixture(b, [incumbent, *others])
        safer = next((one for _, one in reversed(found.parts) if passes(one.utilities, b)), None)
        safer = safer or problem.safest(b, [incumbent, *others])
        if passes(safer.utilities, b):
            markov = self._drawn_back(problem, found.parts, safer)
            if markov.table is incumbent.table:
                return self.fallback("no policy that the box proves safe seems better")
            policy = TablePolicy(markov.table, self._name_of(markov.table))
            return Plan(policy, "search", markov.utilities, self.level, lam=float(found.multipliers.sum()))
        stated = incumbent._replace(utilities=self.task.stated_utilities)
        return self._as_mixture(problem.best_mixture(b, [stated, *others]), incumbent.table)

    def _drawn_back(self, problem: BoxProblem, parts: Parts[Bounded], safer: Bounded) -> Bounded:
        """Return a Markov policy that passes, between a mixture and `safer`, with as little of `safer` as possible.

        The Markov policy for a share is where (1 − share)·(the other parts) + share·safer is, by the estimated kernel.
        """
        others = [(weight, one) for weight, one in parts if one is not safer and weight > 0]
        if not others:
            return safer
        P_hat, start = self._estimate(), self.task.initial_state
        total = sum(weight for weight, _ in others)
        mass = np.add.reduce([weight / total * occupancy(P_hat, one.table, start) for weight, one in others])
        w_safer = occupancy(P_hat, safer.table, start)

        def between(share: float) -> Bounded:
            return problem.bounds(markov_policy((1 - share) * mass + share * w_safer, safer.table))

        lower, upper, found = 0.0, 1.0, safer
        for _ in range(HALVINGS):
            middle = (lower + upper) / 2
            tried = between(middle)
            if passes(tried.utilities, self.task.thresholds):
                upper, found = middle, tried
            else:
                lower = middle
        return found

    def _estimate(self) -> Array:
        """Return P̂ (H, S, A, S) from the counts; uniform where there are none."""
        visits = self.counts.sum(axis=-1, keepdims=True)
        P_hat = np.where(visits > 0, self.counts / np.maximum(visits, 1), 1 / self.counts.shape[-1])
        rows: Array = P_hat[np.minimum(np.arange(self._signals.shape[1]), len(P_hat) - 1)]
        return rows

    def _as_mixture(self, found: BestMixture[Bounded], incumbent: Array) -> Plan:
        """Return the mixture of candidates with the incumbent, the only policy that is known to keep the limits."""
        parts = [(weight, one.table) for weight, one in found.parts if one.table is not incumbent and weight > 0]
        if not parts or not passes(found.values[1:], self.task.thresholds):  # a solver's tolerance proves nothing
            return self.fallback("no mixture with a candidate seems better")
        weights, names = [weight for weight, _ in parts], [self._name_of(table) for _, table in parts]
        names = [name if names.index(name) == n else f"{name}-{n}" for n, name in enumerate(names)]
        policies = [TablePolicy(table, name) for (_, table), name in zip(parts, names, strict=True)]
        rest = sum(weight for weight, one in found.parts if one.table is incumbent)
        mixture = Mixture([*policies, self.task.incumbent], np.array([*weights, rest]), [*names, INCUMBENT])
        lam = float(found.multipliers.sum())
        return Plan(mixture, "search", found.values[1:], self.level, lam=lam)

    def _name_of(self, table: Array) -> str:
        """Return the name of a candidate, or that of the policy of this plan."""
        names = (name for name, own in self._candidates.items() if own is table)
        return next(names, f"proposal-{self.num_plans}")


def transitions(name: str, task: Task, episode: Episode) -> Evidence:
    """Return the evidence of a certifier that learns from transitions; raise InvalidEpisode if they do not fit."""
    if episode.states is None:
        raise InvalidEpisode(
            f"the episode has only totals, and {name} learns from transitions: report states and actions, or use "
            "es.certify.Observation"
        )
    if episode.states[0] != (start := task.initial_state):
        raise InvalidEpisode(f"states[0] is {episode.states[0]}, but {name} needs the fixed start {start}")
    assert task.utilities is not None
    told = task.utilities[:, np.arange(len(episode.actions)), episode.states[:-1], episode.actions].sum(axis=1)
    if not (np.abs(episode.total_utility - told) <= TOLERANCE * len(episode.actions)).all():
        raise InvalidEpisode(
            f"the reported utilities sum to {episode.total_utility}, but those of the task to {told}: {name} needs a "
            "known utility; use es.certify.Observation"
        )
    nothing = np.zeros(0)
    return Evidence((), nothing, np.zeros((0, task.num_constraints)), nothing, episode)
