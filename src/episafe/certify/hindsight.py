"""A certificate from traces: where chance is exogenous and seen, every episode judges every policy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from episafe.certify.base import Certifier, Deployable, ReportedEpisode
from episafe.certify.ledger import Ledger, ledger_of
from episafe.certify.observation import Observation, ObservationCertificate
from episafe.certify.observation import Weighed as Observed
from episafe.certify.wealth_forecast import forecast, forecast_of_new, value_of_best
from episafe.checks import TOLERANCE, as_probability
from episafe.errors import InvalidEpisode
from episafe.kernels.wealth import BETS
from episafe.learning.hindsight_planner import MOST_TRACES, replays_of
from episafe.learning.planner import Aim, Proposal, SoftmaxPlanner
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Amount, Array, IntArray, Level, amount, amounts

# The first two share δ; the others touch the regret and never the guarantee.
REPLAYED = 0.9  # of δ: for what replays prove; the rest is for what is observed, should the replay be wrong
BOLDEST = 0.5  # of the weight of all bets: on the boldest one, which few episodes of steady utility need
NUM_ROWS = 8  # policies on trial at once, with the incumbent
FIRST = 10  # traces before the first proposal
GROWTH = 1.6  # of their number from one proposal to the next
AIMS = (-2.0, -1.0, -0.5, -0.25, 0.0, 0.1, 0.2, 0.4)  # of the slack: how far above b a proposal may aim
AHEAD = 1.0  # for as many traces as were seen a proposal is to be the best
EVERY_EPISODE = 512  # up to here weights are chosen anew in each, then every 64th part of those so far
REMEDY = "only what was observed proves anything from now on: mend `move`, or what is reported, and begin a new folder"
BET_WEIGHTS = np.where(np.arange(len(BETS)) == 0, BOLDEST, (1 - BOLDEST) / (len(BETS) - 1))

Weighed = tuple[ReportedEpisode, Observed]


@dataclass(frozen=True)
class Hindsight:
    """Every deployed mixture has expected utility at least b, in all episodes at once, with probability 1 − delta.

    For problems whose chance is exogenous and seen: `task.is_exogenous`, and every episode carries its `trace`. Each
    trace is replayed under every policy on trial, so that all episodes count for each of them, whoever acted.

    It assumes: traces are independent between episodes, alike, and independent of what is done and of all before them
    (within an episode chance may be any process); none is reported for two episodes; the start is fixed or part of it;
    `move` is right, also where nobody went; a trace is what chance brought, and not what was seen of it (demand, and
    not sales); the incumbent has V^u ≥ b + slack. A candidate of somebody else was not chosen by traces that come after
    it. In a session (`es.open`) traces may come late or never, whatever came of them: they count at their worst. What a
    trace does not show counts as utility 0. No proof reads the task's mean reward and utility.

    Each deployed episode is compared with what `move` makes of its trace. A difference is an alarm, and ends all that
    replays have proved. What was observed counts at a tenth of δ beside it, needs none of this, and goes on.

    The promise is over the coin, as with `Observation`. Logged traces, learned before the first plan, prove something
    too: a policy is proposed from their first half and judged by the second.

    Args:
        delta: the probability with which some deployed mixture may be below b.
    """

    delta: float = 0.05
    name: ClassVar[str] = "hindsight"
    mixes: ClassVar[bool] = True  # it deploys mixtures
    level: ClassVar[Level] = "theorem"
    uses_traces: ClassVar[bool] = True  # episodes must say what chance brought

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", as_probability("delta", self.delta))

    def begin(self, task: AnyTask) -> "HindsightCertificate":
        """A certificate for this task, with nothing on trial yet."""
        if not task.is_exogenous:
            raise TypeError(
                "Hindsight replays what chance brought: give the problem move=(h, state, action, w) ↦ (next state, "
                "reward, utility), or use es.certify.Observation()"
            )
        return HindsightCertificate(task, self.delta)

    def settings(self) -> dict[str, str | int | float]:
        """The certifier, its delta and what is proved."""
        statement = (
            f"every deployed mixture has expected utility at least b, in all episodes together, with probability "
            f"{1 - self.delta:g}, if what chance brings in an episode, its trace, is independent of all before it and "
            f"of what is done, and all traces are alike; no two episodes share one; the start is fixed or part of the "
            f"trace; move is right, also where nobody went, and the trace is what chance brought and not what was "
            f"seen of it; a candidate of somebody else was not chosen by traces that count for it; logged traces were "
            f"not chosen by what they show; the coin is tossed as the weights say, total utilities are not negative, "
            f"and the incumbent has b + slack; reports and traces may be late or lost in a session, which counts "
            f"deployments, and without one each comes once"
        )
        return {"certifier": self.name, "delta": self.delta, "statement": statement}


def strongest(task: AnyTask, delta: float = 0.05) -> Certifier:
    """The strongest certifier that a problem allows: `Hindsight` where chance is exogenous and seen, or `Observation`.

    Both are at level theorem, without features.
    """
    return Hindsight(delta) if task.is_exogenous else Observation(delta)


class HindsightCertificate:
    """Two kinds of evidence, and what they allow.

    Attributes:
        traces: all that were seen.
        replayed: the ledger of what replays prove, at 0.9 of δ. Every trace counts for every row.
        observed: the certificate of what deployed episodes prove by themselves, at the rest. It needs no replay.
        refuted: why replays prove nothing any more; "" while each deployed episode was what `move` makes of its trace.
        num_episodes: that were deployed and reported.
        num_logged: the first so many traces are of a log.
        newest_plan: the number of the last plan; a policy is judged by episodes of later ones than when it began.
    """

    needs_names: ClassVar[bool] = False

    def __init__(self, task: AnyTask, delta: float) -> None:
        traces, self._proposals = replays_of(task)
        self.task, self.traces = task, traces(task)
        self.replayed = ledger_of(task, REPLAYED * delta, NUM_ROWS, BET_WEIGHTS)
        self.observed = ObservationCertificate(task, (1 - REPLAYED) * delta)
        self.refuted = ""
        self.num_episodes, self.newest_plan, self.next_proposal, self.next_choice = 0, -1, FIRST, 0
        self.num_logged = 0
        self._first_plans = np.zeros(NUM_ROWS, dtype=np.int64)  # by row: the first whose episodes count

    @property
    def ledger(self) -> Ledger:
        """What holds the policies on trial."""
        return self.observed.ledger if self.refuted else self.replayed

    @property
    def void(self) -> str:
        """Why nothing is proved any more; "" if all is well."""
        return self.observed.void or self.replayed.void

    @property
    def untraced(self) -> int:
        """How many deployed episodes came without a trace, at least: those of logs make up for some."""
        return 0 if self.refuted else max(self.num_episodes - len(self.traces), 0)

    def is_due(self) -> bool:
        """Whether what is deployed may change."""
        return bool(self.refuted or self.void or not self.episodes_to_choice)

    @property
    def episodes_to_choice(self) -> int:
        """How many until what is deployed may change, if replays are believed; 0 if that is now."""
        return max(min(self.next_choice - self.num_episodes, self.next_proposal - len(self.traces)), 0)

    def wants_candidate(self) -> bool:
        """Whether it is time to propose."""
        if self.refuted:
            return self.observed.wants_candidate()
        return not self.void and len(self.traces) >= self.next_proposal

    def aim(self) -> Aim:
        """That of `Observation`, for proposals from observed episodes."""
        return self.observed.aim()

    def propose(self, planner: SoftmaxPlanner) -> None:
        """Put the proposal on trial that will be worth most; of the planner, once replays are not believed."""
        if self.refuted:
            self.observed.propose(planner)
            return
        if self.newest_plan < 0:
            self._learn_from_log()
        self.next_proposal = math.ceil(GROWTH * len(self.traces))
        beside = np.flatnonzero(self.replayed.in_use).tolist()
        found = self._most_promising(self.traces, math.ceil(AHEAD * len(self.traces)), beside)
        if found is not None:
            self.consider(found)

    def _learn_from_log(self) -> None:
        """Propose from the first half of the traces that were logged, and judge that by the others.

        The incumbent alone is looked at beside it: candidates of somebody else may have been fitted to all of them.
        """
        n = self.num_logged
        first = self.traces.beginning(n // 2)
        found = self._most_promising(first, n - n // 2, [0]) if n else None
        if found is None:
            return
        row = self.replayed.begin(found.policy, found.lam, found.reward)
        totals = self.traces.totals(found.policy, len(first))[: n - len(first)]
        for utility, reward in zip(self._as_totals(totals[:, 1:]), totals[:, 0].tolist(), strict=True):
            self.replayed.credit(None, [row], [1.0], utility, reward)
        self._begin(row, found.policy)
        self.observed.consider(found)

    def _most_promising(self, traces: Any, ahead: int, beside: list[int]) -> Proposal | None:
        """That with which the best mixture is forecast to be best; None where it is no better without.

        Args:
            traces: that it is made of.
            ahead: how many more are to judge it.
            beside: the rows of the policies that may be mixed with it.
        """
        ledger, recent = self.replayed, max(len(traces) - MOST_TRACES, 0)
        thresholds, n = amounts(self.task.limits), len(ledger.policies)
        in_use = np.isin(np.arange(n + 1), [*beside, n]).astype(np.int64)
        scores, lower = np.zeros(n + 1), np.zeros((n + 1, len(thresholds)))
        for i in beside:
            scores[i], lower[i] = ledger.score(i), amounts(ledger.lower[i])
            if i:
                lower[i] = forecast(ledger.each, traces.totals(ledger.policies[i], recent), ahead, i)
        most, found = value_of_best(scores[:n], lower[:n], thresholds, in_use[:n]), None
        aims = [self.task.limits + share * amount(known_slacks(self.task)) for share in AIMS]
        for proposal, totals in self._proposals(traces, aims):
            scores[n], lower[n] = proposal.reward, forecast_of_new(ledger.each, totals, ahead, BET_WEIGHTS)
            value = value_of_best(scores, lower, thresholds, in_use)
            if value > most:
                most, found = value, proposal
        return found

    def consider(self, proposal: Proposal) -> None:
        """Put a proposal on trial; all that is proved about it is proved from later episodes."""
        row = self.replayed.begin(proposal.policy, proposal.lam, proposal.reward)
        self._begin(row, proposal.policy)
        self.observed.consider(proposal)

    def add(self, candidate: Policy) -> None:
        """Put a candidate of somebody else on trial."""
        row = self.replayed.add(candidate, float(self.task.horizon))
        self._begin(row, candidate)
        self.observed.add(candidate)

    def _begin(self, row: int, policy: Policy) -> None:
        """A policy is judged by traces of later plans; what it would have earned on earlier ones is no proof."""
        missing = max(row + 1 - len(self._first_plans), 0)
        self._first_plans = np.append(self._first_plans, np.zeros(missing, dtype=np.int64))
        self._first_plans[row] = self.newest_plan + 1
        if len(self.traces):
            self.replayed.know_rewards(row, float(self.traces.totals(policy)[:, 0].sum()), len(self.traces))

    def deployment(self) -> Deployable:
        """The best mixture whose bound reaches the threshold; the incumbent alone, once nothing is proved any more."""
        if self.void:  # also by replays alone: what is observed rests on the same least total
            return Deployable.alone(self.task.safe_policy, self.void)
        if self.refuted:
            return self.observed.deployment()
        step = 1 if self.num_episodes < EVERY_EPISODE else self.num_episodes // 64
        self.next_choice = self.num_episodes + step
        return self.replayed.best(self._lower())

    def _lower(self) -> Array:
        """What is proved of each row, by replays or by observed episodes: the union of both holds at δ."""
        by_row = self.observed.ledger.rows_of_all(self.replayed.policies)
        lower: Array = self.replayed.lower.copy()
        for i, row in enumerate(by_row):
            if row > 0:
                lower[i] = np.maximum(lower[i], self.observed.ledger.lower[row])
        return lower

    def bounds(self) -> dict[str, Amount]:
        """What is proved of each policy on trial, by its name."""
        if self.refuted:
            return self.observed.bounds()
        rows, lower = np.flatnonzero(self.replayed.in_use).tolist(), self._lower()
        return {self.replayed.names[i]: lower[i] if lower.ndim > 1 else float(lower[i]) for i in rows}

    def issued(self, plan_id: int) -> None:
        """A plan is made: episodes of it and of later ones begin from now on."""
        self.newest_plan = plan_id

    def expect(self, policy: Policy, deployment: int, plan_id: int) -> None:
        """A deployment is made: until its trace comes it counts at its worst for every policy on trial."""
        self.observed.expect(policy, deployment, plan_id)
        if not self.refuted:
            self.replayed.expect(deployment, np.flatnonzero(self.replayed.in_use).tolist(), plan_id)

    def abandon(self, deployment: int) -> None:
        """Nothing: what is never reported stays at its worst for ever."""

    def judge(self, policy: Policy, outcome: ReportedEpisode) -> Weighed:
        """The shares of the components in an episode; what they cannot have done is refused, and where `move` fails.

        A utility that was not reported counts as the least total in what was observed: neither the task's means nor
        `move`, which may be wrong, stand in for it.
        """
        report = outcome.report
        if outcome.states is not None and not self.task.starts(outcome.states):
            raise InvalidEpisode(
                f"states[0] is {outcome.states[0]!r}, and replays start at {self.task.initial_state!r}: what they "
                "prove is of episodes that do; reset the system there, or state a random start"
            )
        if not self.refuted and outcome.trace is not None and outcome.states is not None:
            self.task.require_moves(report)
        if not report.reports_utility:
            outcome = outcome._replace(utility=amount(self._least))
        return outcome, self.observed.judge(policy, outcome)

    def take_in(self, weighed: Weighed) -> None:
        """Replay the trace under every policy on trial, and compare it with what was reported."""
        outcome, observed = weighed
        if outcome.trace is not None and not self.refuted:
            self.traces.take_in(outcome.trace)
        self.observed.take_in(observed)
        self.num_episodes += 1
        if self.refuted:
            return
        if outcome.trace is not None:
            fault = self.traces.fault_of(outcome.report)
            if fault:
                self.refuted = f"an episode is not what move makes of its trace: {fault}; {REMEDY}"
                return
        self._credit(outcome)

    def _credit(self, outcome: ReportedEpisode) -> None:
        """Each policy has one factor for each episode that began after it: X is its utility on the trace.

        What a trace does not show counts as nothing, and a trace that nobody saw at the least total.
        """
        if outcome.trace is None and outcome.deployment is not None:
            return  # a session counts it, and it stays at its worst
        ledger, rows = self.replayed, self.rows_judged(outcome.plan)
        if outcome.deployment is not None:  # the ledger knows which were under way when a policy began
            rows = np.flatnonzero(ledger.in_use)
        if outcome.trace is None:
            rewards, utilities = np.array([ledger.score(i) for i in rows.tolist()]), np.zeros((len(rows), 1))
        else:
            policies = [ledger.policies[i] for i in rows.tolist()]
            totals = self.traces.totals_of_all(policies, len(self.traces) - 1)[:, 0]
            rewards, utilities = totals[:, 0].copy(), totals[:, 1:]
            if not self.traces.fault and all(w is not None for w in self.task.read_trace(outcome.trace)):
                self._require_least(utilities)
        ledger.credit_each(outcome.deployment, rows, self._as_totals(utilities), rewards, outcome.named)

    def rows_judged(self, plan_id: int) -> IntArray:
        """The rows of the policies that episodes of this plan judge."""
        rows = np.flatnonzero(self.replayed.in_use)
        return rows[self._first_plans[rows] <= plan_id]

    def _require_least(self, utilities: Array) -> None:
        """Prove nothing any more where a policy would have had less than the least total on a trace that shows all."""
        below = utilities < self._least - TOLERANCE * max(self.task.horizon, 1.0)
        if below.any():
            self.replayed.end(
                f"a policy on trial would have had a total utility of {utilities[below].min():.6g} on what chance "
                "brought, below the least that every proof rests on; state a true least_total and begin anew"
            )

    def _as_totals(self, utilities: Array) -> Array:
        """Total utilities (n, m) as a ledger has them, none below the least total: what was not seen counts as that."""
        found: Array = np.maximum(utilities, self._least)
        return found if self.task.num_constraints > 1 else found[:, 0].copy()

    @property
    def _least(self) -> Array:
        return np.array([one.least_total for one in self.task.constraints])

    def learn_log(self, trace: Any, is_counted: bool = False) -> None:
        """A trace of no plan of ours: the planner learns from it.

        Those that are there before the first plan also judge a policy that is proposed from the first half of them. Not
        those of deployments that a session has counted, as while it is halted: which of them come may depend on them.
        """
        if self.newest_plan < 0 and not is_counted and self.num_logged == len(self.traces):
            self.num_logged += 1
        self.traces.take_in(trace)

    def change(self, task: AnyTask) -> None:
        """Go on with another threshold or slack: what is proved of a policy depends on neither."""
        self.task = task
        self.observed.change(task)
        self.replayed.change(task.limits, self.observed.ledger.lower[0])

    def withdraw(self, name: str) -> None:
        """End the trial of a policy."""
        if name in self.replayed.bounds():
            self.replayed.withdraw(name)
        if name in self.observed.bounds():
            self.observed.withdraw(name)

    def lose(self, num_candidates: int) -> None:
        """End all trials: deployments are lost, and with them up to so many candidates, whose δ_j stay spent.

        Of a first plan that is lost there may be two: one by the log, and one by all traces.
        """
        num_candidates += int(self.newest_plan < 0)
        self.replayed.lose(num_candidates)
        self.observed.lose(num_candidates)

    def state(self, policies: PolicyArrays) -> State:
        """Both kinds of evidence, and when to propose."""
        own = {
            "num_episodes": self.num_episodes,
            "newest_plan": self.newest_plan,
            "next_proposal": self.next_proposal,
            "next_choice": self.next_choice,
            "num_logged": self.num_logged,
            "first_plans": self._first_plans,
            "refuted": np.array(self.refuted),
        }
        observed = {name.removeprefix("certificate."): one for name, one in self.observed.state(policies).items()}
        parts = under("replayed", self.replayed.state(policies)) | under("observed", observed)
        return under("certificate", {**own, **parts, **self.traces.state()})

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        self.replayed.restore(saved.under("replayed"), policies)
        self.observed.restore(saved.under("observed"), policies)
        self.traces = self.traces.restored(saved, self.task)
        self.num_episodes, self.newest_plan = saved.whole("num_episodes"), saved.whole("newest_plan", -1)
        self.next_proposal, self.next_choice = saved.whole("next_proposal"), saved.whole("next_choice")
        self.num_logged = saved.whole("num_logged", 0, len(self.traces) + 1)
        self._first_plans = saved.wholes("first_plans", (len(self.replayed.policies),), 0, 2**62).copy()
        self.refuted = saved.text("refuted")
