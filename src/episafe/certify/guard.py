"""Budget and Both: certifiers that keep every window of episodes at the limit.

The arithmetic is in budget.py. This file computes the replays for it and chooses the policies, which is a heuristic.
"""

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import ClassVar, Literal

import numpy as np

from episafe.certify.budget import Calendar, Relative, Windows
from episafe.certify.evidence import admits
from episafe.certify.replays import replays_of
from episafe.certify.trials import PROPOSAL, named
from episafe.core.agent import WEIGHT, Candidate, Certifier, Evidence, Goal, Proposer, plan_of
from episafe.core.checks import TOLERANCE, as_array, as_count, as_probability, require
from episafe.core.errors import Infeasible, InvalidEpisode
from episafe.core.policy import Mixture, Policy
from episafe.core.task import Constraint, Task, per_limit
from episafe.core.types import INCUMBENT, Array, Episode, PerLimit, Plan, Settings

Form = Literal["replay", "sure", "relative"]
GUARD = "window:"  # before the names in evidence that window sums rest on
REFIT = 7  # reports from one proposal to the next
SMALLEST = 1e-6  # smallest share of a plan that is worth a mixture
AGREES = 1e-9  # recomputed shares agree to this

PROMISES = {
    "replay": "the mean total utility of every window of {n} consecutive episodes{months} is at least the threshold, "
    "where each episode counts with its expectation over the draw of the component, by replay on its trace",
    "sure": "the mean of the reported total utilities of every window of {n} consecutive episodes{months} is at least "
    "the threshold",
    "relative": "at every time the sum of the total utilities is at least {alpha:g} times that of the incumbent, where "
    "each episode counts with its expectation over the draw, by replay",
}
REPLAYED = (
    "move and the traces are exact, the actions do not affect the random inputs, and no trace depends on the draw of "
    "the component in its episode; where states are not listed, a random policy counts with the actions drawn for it"
)
LEASTS = (
    "no episode of the incumbent totals less than {x}, and none of another policy less than {least}, or than the "
    "larger least total that is stated for it or follows from the support; "
)
CERTAIN = (
    "a missing report counts as the worst case; no probability law is assumed: days may drift, depend on each other "
    "or be chosen by an adversary. Nothing is promised about the expected utility of a single policy or episode"
)


class Budget(Certifier):
    """Every window of episodes keeps the limit, without statistics: level "window".

    Suppose that the candidate has its least total in this episode and that the incumbent acts in the rest of each
    window. The candidate has the largest weight with which every window still reaches the limit. The incumbent's total
    must never be below the limit.

    Args:
        window: n; every n consecutive episodes are a window.
        incumbent_least: a total that every episode of the incumbent reaches, at least the threshold. Give one number,
            or one per limit, in the units of the task's totals. The relative form needs none.
        least: a total that every episode of any other policy reaches.
        form: "replay" counts expectations over the draw of the component and needs `move` and traces; "sure" counts
            reported totals and gives a candidate weight 0 or 1; "relative" compares running sums with the incumbent's.
        calendar: "month", if episode ids are dates and every day has one episode. Or a function of the episode id that
            returns the window and a lower bound on the number of its later episodes.
        alpha: the share of the incumbent's sum that the relative form keeps.
    """

    name: ClassVar[str] = "budget"
    level = "window"
    warning: str = ""

    def __init__(
        self,
        window: int = 28,
        incumbent_least: PerLimit = None,
        least: PerLimit = 0.0,
        form: Form = "replay",
        calendar: Calendar | Literal["month"] | None = None,
        *,
        alpha: float = 0.9,
    ) -> None:
        require(form in PROMISES, f'form must be "replay", "sure" or "relative", got {form!r}')
        text = "incumbent_least is missing: give a total that no episode of the incumbent is below"
        require(incumbent_least is not None or form == "relative", text)
        text = f'calendar must be "month" or a function of the episode id, got {calendar!r}'
        require(calendar in (None, "month") or callable(calendar), text)
        self.window, self.form, self.calendar = as_count("window", window), form, calendar
        self.alpha = as_probability("alpha", alpha)
        self._given = {"incumbent_least": incumbent_least, "least": least}
        self.uses_traces = form != "sure"
        self.replay_prefix = GUARD if self.uses_traces else None
        self.candidates: dict[str, Candidate] = {}
        self.target: dict[str, float] = {}  # what would be deployed if there were no windows
        self._waiting = ""  # a proposal that waits for the one that it is mixed with
        self.own_leasts: dict[str, Array] = {}  # of candidates that state their own, (m,)
        self.num_reports = self.num_candidates = self.next_proposal = 0
        self._plans: dict[int, Plan] = {}  # without a report
        self._episode_id = self.surprised = ""  # the first value outside the support, which ended all floors

    def __repr__(self) -> str:
        return f"Budget(window={self.window}, form={self.form!r})"

    def start(self, task: Task) -> None:
        """Bind the certifier to a task."""
        self.task, m = task, task.num_constraints
        x, least = (
            as_array(name, per_limit(name, 0.0 if one is None else one, task.limit_names, for_all=True), (m,))
            for name, one in self._given.items()
        )
        self.least = np.maximum(least, task.least_totals)
        self.x = self.least if self.form == "relative" else x
        self._require_reach(task.constraints)
        replayable = not self.uses_traces or task.move is not None or task.num_actions is None
        require(replayable, f'the form "{self.form}" replays traces: give the problem move=…, or use form="sure"')
        calendar = month_of if self.calendar == "month" else self.calendar
        self.windows = Windows(self.window, task.thresholds, self.x, calendar)
        bounded = self.form != "relative" or task.horizon is not None
        require(bounded, 'the form "relative" needs a largest total: give the problem a horizon')
        self.sums = Relative(self.alpha, float(task.horizon or 1), m)
        self.use_salt("")

    def _require_reach(self, constraints: Sequence[Constraint]) -> None:
        for one, x in zip(constraints, self.x.tolist(), strict=True):
            text = (
                f"the incumbent's least total {x:g} of {one.name} is below the threshold {one.threshold:g}, so no "
                'window can be promised: use another incumbent, another threshold or form="relative"'
            )
            require(x >= one.threshold or self.form == "relative", text, Infeasible)

    def use_salt(self, salt: str) -> None:
        """Draw the actions of randomised policies in replays from this private salt, where states are not listed."""
        if self.uses_traces and self.task.move is not None:
            self.replays = replays_of(self.task, salt)

    def settings(self) -> Settings:
        """Return the arguments and the statement."""
        months = " and of every finished calendar window" if self.calendar is not None else ""
        promise = PROMISES[self.form].format(n=self.window, months=months, alpha=self.alpha)
        facts = "" if self.form == "relative" else LEASTS.format(x=self.x.tolist(), least=self.least.tolist())
        every_day = "every day of a month has one episode; " if self.calendar == "month" else ""
        replayed = f"{REPLAYED}; " if self.uses_traces else "reports are true; "
        return {
            "certifier": self.name,
            "window": self.window,
            "incumbent_least": self.x.tolist(),
            "least": self.least.tolist(),
            "form": self.form,
            "calendar": "function" if callable(self.calendar) else self.calendar,
            "alpha": self.alpha,
            "statement": f"{promise}, if: {facts}{every_day}{replayed}{CERTAIN}",
        }

    def add(self, candidate: Candidate) -> None:
        """Let a candidate replace the last one, or act alongside it if its statistics state a weight."""
        name, weight = candidate.name, candidate.statistics.get(WEIGHT, 1.0)
        self.note_least(candidate)
        self.num_candidates += 1
        self.candidates[name] = candidate
        if weight == 0:  # it waits for the next one
            self._waiting = name
            return
        self.target = {name: weight} | ({self._waiting: 1.0 - weight} if weight < 1 else {})
        for old in [one for one in self.candidates if one.startswith(PROPOSAL) and one not in self.target]:
            del self.candidates[old]
        self.postpone()

    def note_least(self, candidate: Candidate) -> None:
        """Note the least totals that a candidate states for itself."""
        if candidate.least_totals is not None and not self.surprised:
            self.own_leasts[candidate.name] = np.maximum(self.least, candidate.least_totals)

    def goal(self) -> Goal | None:
        """Return the limits when it is time for a proposal: once a week."""
        return None if self.invalid_reason or self.num_reports < self.next_proposal else Goal(self.task.thresholds)

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return the proposal of the week."""
        return named(super().consult(proposer), self.num_candidates + 1)

    def postpone(self) -> None:
        """Ask for no proposal before another week has passed."""
        self.next_proposal = self.num_reports + REFIT

    def promote(self, name: str) -> None:
        """Let another candidate act as far as the windows allow; "incumbent" ends this for all candidates."""
        self.require_on_trial(name, INCUMBENT)
        self.target = {name: 1.0}

    def restart(self) -> None:
        """Deploy the incumbent until the next proposal, which is requested at once."""
        super().restart()
        self.target, self.next_proposal = {}, self.num_reports

    def plan(self) -> Plan:
        """Return the plan of the newest candidates with the largest weight that the windows allow."""
        parts = {name: (self.candidates[name].policy, w) for name, w in self.target.items() if name in self.candidates}
        if self.invalid_reason or not parts:
            return self.fallback(self.invalid_reason or "there is no candidate")
        return self.guarded(mixed(self.task, parts))

    def guarded(self, plan: Plan) -> Plan:
        """Return a plan with as much weight as the windows allow; the incumbent has the rest."""
        if set(plan.parts.names) == {INCUMBENT}:
            return plan
        if (share := self.share(plan)) < SMALLEST:
            return self.fallback("the windows allow no weight for a candidate")
        if share < 1:
            each = zip(plan.parts.names, plan.parts.components, (share * plan.parts.weights).tolist(), strict=True)
            parts = {name: (policy, weight) for name, policy, weight in each if name != INCUMBENT}
            plan = replace(mixed(self.task, parts), lam=plan.lam)
        return replace(plan, bounds=self.proves(plan), level="window")

    def share(self, plan: Plan) -> float:
        """Return the largest share in [0, 1] of a plan that may be deployed next; 0 or 1 in the sure form."""
        if self.form == "relative":
            return min(1.0, self.sums.weight() / max(weight_of_others(plan), SMALLEST))
        found = self.windows.share(self._certain(plan.parts.names, plan.parts.weights), self._episode_id)
        return found if self.form == "replay" else float(found >= 1)

    def _certain(self, names: Sequence[str], weights: Array) -> Array:
        """Return the certain total (m,) of a plan: over the draw, or for every component in the sure form."""
        leasts = np.array([self.least_of(name) for name in names])
        return leasts.min(axis=0) if self.form == "sure" else weights @ leasts

    def least_of(self, name: str) -> Array:
        """Return the total (m,) that every episode of a policy reaches."""
        return self.x if name == INCUMBENT else self.own_leasts.get(name, self.least)

    def sure_totals(self, candidate: Candidate) -> Array:
        """Return totals (m,) that no episode of a policy falls below: stated, or by its replays over the support."""
        known = self.x if candidate.name == INCUMBENT else np.maximum(self.least, super().sure_totals(candidate))
        replayed = self.uses_traces and self.task.move is not None and not self.surprised
        found = self.replays.least_totals(candidate.policy, sure=True) if replayed else None
        return known if found is None else np.maximum(known, found)

    def refusal(self, plan: Plan) -> str:
        """Return why a plan may not be deployed next; "" if every window allows it."""
        share = self.share(plan)
        if share >= 1 - AGREES or set(plan.parts.names) == {INCUMBENT}:
            return ""
        weights = dict(zip(plan.parts.names, plan.parts.weights.tolist(), strict=True))
        return f"the windows allow only {share:.6g} of {weights}"

    def announce(self, episode_id: str) -> None:
        """Note the id of the next deployment, for the calendar."""
        self._episode_id = episode_id
        if self.windows.calendar is not None:
            try:
                self.windows.calendar(episode_id)
            except Exception as error:
                raise InvalidEpisode(
                    f"the calendar cannot place the episode {episode_id!r} ({type(error).__name__}: {error}): give "
                    "session.deploy an episode_id that it knows; in es.run the ids are '0', '1', …"
                ) from error

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as its certain total."""
        names = plan.parts.names
        if self.form == "relative":
            self.sums.deploy(deployment, weight_of_others(plan))
        else:
            drawn = names if component is None or self.form == "replay" else names[component : component + 1]
            self.windows.deploy(deployment, self._certain(drawn, plan.parts.weights), self._episode_id)
        self._plans[deployment] = plan

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the reported totals, or the replays of the components and of the incumbent."""
        plan, m = plan_of(self._plans, deployment), self.task.num_constraints
        if self.form == "sure":
            total = np.asarray(episode.total_utility, dtype=np.float64).reshape(1, m)
            reward = np.array([float(episode.total_reward or 0.0)])
            return Evidence((GUARD + plan.parts.names[episode.component or 0],), np.zeros(1), total, reward)
        if episode.trace is None or self.task.move is None:
            return Evidence((), np.zeros(0), np.zeros((0, m)), np.zeros(0))
        trace, fault = self.replays.judge(episode)
        known = {INCUMBENT: self.task.incumbent} | dict(zip(plan.parts.names, plan.parts.components, strict=True))
        totals = self.replays.totals(list(known.values()), [trace], [deployment])[:, 0]
        worst = np.array([self.least_of(name) for name in known])
        utilities = np.where(totals[:, -1:] > 0, np.maximum(totals[:, 1:-1], worst), totals[:, 1:-1])
        rests_on_support = np.isfinite(self.task.floors).any() and not (self.surprised or fault)
        surprise = self.replays.surprise_of(episode, trace) if rests_on_support else ""
        names = tuple(GUARD + name for name in known)
        return Evidence(names, np.zeros(len(known)), utilities, totals[:, 0], None, fault, surprise)

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Replace the certain totals by the reported or replayed ones."""
        plan = self._plans[deployment]
        self.surprised = self.surprised or evidence.surprise
        if evidence.surprise or evidence.fault:
            self.own_leasts.clear()  # floors rest on `move` and the support
        if evidence.fault and self.uses_traces:
            self.void(f"an episode differs from what move computes from its trace: {evidence.fault}")
        if self.invalid_reason or not evidence.names:
            self.abandoned(deployment)
            return
        del self._plans[deployment]
        self.num_reports += 1
        found = {name.removeprefix(GUARD): u for name, u in zip(evidence.names, evidence.utilities, strict=True)}
        for name, total in found.items():
            if name in plan.parts.names and (total < self.least_of(name) - TOLERANCE * (1 + np.abs(total))).any():
                self.warning = (
                    f"deployment {deployment}: {name!r} totals {total.tolist()}, below the least total "
                    f"{self.least_of(name).tolist()} that windows assume: they may miss the limit by the difference"
                )
        weights = np.ones(1) if self.form == "sure" else plan.parts.weights
        total = weights @ [found[name] for name in (found if self.form == "sure" else plan.parts.names)]
        if self.form == "relative":
            self.sums.settle(deployment, total, found[INCUMBENT])
        else:
            self.windows.settle(deployment, total)

    def abandoned(self, deployment: int) -> None:
        """Count a deployment that will never be reported as the worst case."""
        self._plans.pop(deployment, None)
        (self.sums if self.form == "relative" else self.windows).abandon(deployment)

    def bounds(self) -> dict[str, Array]:
        """Return the stated total (m,) that every episode of each policy reaches."""
        return {name: self.least_of(name).copy() for name in (INCUMBENT, *self.candidates)}

    def withdraw(self, name: str) -> None:
        """Stop deploying a candidate."""
        self.require_on_trial(name)
        del self.candidates[name]

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other thresholds: raised ones in windows that begin later, lowered ones at once."""
        self._require_reach(constraints)
        self.task = replace(self.task, constraints=tuple(constraints))
        self.windows.change(self.task.thresholds)


class Both(Certifier):
    """Certifies plans by both a statistical certifier, which chooses, and a budget, which limits the weights.

    The budget moves weight from candidates to the incumbent. The incumbent's bounds reach the limits, so the mixture
    with smaller weights still satisfies the statistical certifier.

    Args:
        first: the statistical certifier, for example `Hindsight()`.
        guard: the budget.
    """

    name: ClassVar[str] = "both"

    def __init__(self, first: Certifier, guard: Budget) -> None:
        text = "Both needs a statistical certifier and a Budget: es.certify.Both(Hindsight(), Budget(…))"
        require(isinstance(guard, Budget) and not isinstance(first, Budget), text)
        self.first, self.guard, self.level = first, guard, first.level
        self.parts = first, guard
        self.uses_traces = first.uses_traces or guard.uses_traces
        self.replay_prefix = guard.replay_prefix or first.replay_prefix

    def __repr__(self) -> str:
        return f"Both({self.first!r}, {self.guard!r})"

    def settings(self) -> Settings:
        """Return the settings of both and both statements."""
        first, guard = self.first.settings(), self.guard.settings()
        statement = f"(1) {first.pop('statement', '')}. (2) {guard.pop('statement')}"
        return {**first, "certifier": self.name, "parts": [first, guard], "statement": statement}

    def least_totals(self, policy: Policy) -> Array | None:
        """Return the least totals (m,) that are certain under a policy; in each of its draws in the sure form."""
        found = self.first.least_totals(policy)
        if found is None or self.guard.form != "sure":
            return found
        return self.first.sure_totals(Candidate(policy.name, policy))

    def sure_totals(self, candidate: Candidate) -> Array:
        """Return totals (m,) that no episode of a policy falls below."""
        own = replace(candidate, least_totals=None)  # those may be means over the policy's draws, and the first knows
        return np.maximum(self.first.sure_totals(candidate), self.guard.sure_totals(own))

    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial."""
        self.first.add(candidate)
        self.guard.note_least(candidate)

    def goal(self) -> Goal | None:
        """Return the goal of the next proposal; None while a trial is under way."""
        return None if self.guard.invalid_reason else self.first.goal()

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return the candidate to try next."""
        found = self.first.consult(proposer)
        return None if found is None else replace(found, least_totals=self.least_totals(found.policy))

    def plan(self) -> Plan:
        """Return the plan of the first, with as much weight as the windows allow."""
        plan = self.first.plan()
        if self.guard.invalid_reason:
            return self.guard.fallback(self.guard.invalid_reason)
        found = self.guard.guarded(plan)
        if found.source == "safe":
            return replace(found, level=self.level)
        bounds = self.first.proves(found)
        if not admits(bounds, self.task.thresholds):  # by rounding
            return self.guard.fallback("no mixture with a candidate passes both checks")
        return replace(found, bounds=bounds, level=self.level)

    def restart(self) -> None:
        """End all trials, because conditions have changed."""
        self.first.restart()

    def refusal(self, plan: Plan) -> str:
        """Return why a plan may not be deployed next; "" if both allow it."""
        return self.first.refusal(plan) or self.guard.refusal(plan)

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as the worst case until it is reported."""
        self.first.deployed(deployment, plan, component)
        self.guard.deployed(deployment, plan, component)

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the evidence of both."""
        return self.first.evidence(deployment, episode) + self.guard.evidence(deployment, episode)

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Pass its part of the evidence to each."""
        self.first.apply(deployment, evidence.where(lambda name: not name.startswith(GUARD)))
        self.guard.apply(deployment, evidence.where(lambda name: name.startswith(GUARD)))

    def bounds(self) -> dict[str, Array]:
        """Return the bounds of the first."""
        return self.first.bounds()

    def proves(self, plan: Plan) -> Array:
        """Return the bounds (m,) that the first proves for a plan."""
        return self.first.proves(plan)

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other thresholds and slacks from now on."""
        self.guard.change(constraints)
        self.first.change(constraints)
        self.task = self.guard.task

    def void(self, reason: str) -> None:
        """Note that an assumption of the first was contradicted."""
        self.first.void(reason)


def weight_of_others(plan: Plan) -> float:
    """Return the weight of all other policies than the incumbent."""
    return float(plan.parts.weights[[name != INCUMBENT for name in plan.parts.names]].sum())


def mixed(task: Task, parts: dict[str, tuple[Policy, float]]) -> Plan:
    """Return the plan with these policies and weights; the incumbent has the rest."""
    policies, weights = zip(*parts.values(), strict=True)
    rest = 1.0 - sum(weights)
    if rest <= TOLERANCE:
        return Plan(policies[0] if len(parts) == 1 else Mixture(policies, weights, tuple(parts)), "search")
    return Plan(Mixture([*policies, task.incumbent], [*weights, rest], (*parts, INCUMBENT)), "search")


def month_of(episode_id: str) -> tuple[str, int]:
    """Return the month of a date and how many of its days are still to come."""
    day = date.fromisoformat(episode_id[:10])
    return f"{day:%Y-%m}", monthrange(day.year, day.month)[1] - day.day
