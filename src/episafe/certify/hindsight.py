"""Hindsight: a certificate from replays. With exogenous chance, every trace is evidence for every policy."""

import math
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from episafe.certify.evidence import Accounts
from episafe.certify.grid import FINENESS
from episafe.certify.observation import Observation
from episafe.certify.replays import Traces, replay_statistics, replays_of
from episafe.certify.traces import TraceProposer
from episafe.certify.trials import PROPOSAL, Trials, named
from episafe.core.agent import Candidate, Certifier, Evidence, Goal, Proposer, plan_of, promise
from episafe.core.checks import as_count, as_probability, require
from episafe.core.errors import InvalidEpisode
from episafe.core.policy import Policy
from episafe.core.task import Constraint, Task
from episafe.core.types import INCUMBENT, Array, Episode, IntArray, Plan, Settings
from episafe.kernels.mixture import best_weights
from episafe.kernels.replay import forecast_bound
from episafe.kernels.wealth import BETS, LARGEST

ON_FLOORS, PLAIN = 0.88, 0.1  # of δ: for replays, from floors upwards, and from the stated least totals, should chance
OBSERVING = 1 - ON_FLOORS - PLAIN  # leave its support; for what is observed, should `move` be wrong
PLAIN_FINENESS = 12  # points of the grid of plain sequences while the distance to the incumbent's utility falls to 1/e
BOLDEST = 0.8  # of the weight of all bets: on the boldest one, which few episodes of steady utility need
BET_WEIGHTS = np.where(np.arange(len(BETS)) == 0, BOLDEST, (1 - BOLDEST) / (len(BETS) - 1))
# The following change the regret and never the guarantee.
NUM_ROWS = 8  # policies on trial at once, with the incumbent
FIRST = 6  # traces before the first proposal
GROWTH = 1.6  # of their number from one proposal to the next
AIMS = (-0.5, 0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9)  # of the slack: how far above b a proposal may aim; seeds 3000 to 3007
AHEAD = 3.0  # times the traces so far: the future that proposals are compared for; chosen on seeds 1000 to 1015
MOST_TRACES = 256  # that a forecast is made from, about
EVERY_EPISODE = 512  # up to here weights are chosen in each episode, then after every 64th part of those so far

OBSERVED = "observed:"  # before the names in evidence that rests on no replay
REPLAYS, REPLAYED_REWARD = "replays", "replayed reward"  # statistics of proposals: number of traces, and their sum

ASSUMES = (
    "the trace of an episode, which holds its random inputs, is independent of all earlier traces, of the actions "
    "and of the draw of the component, and all traces have the same law, without drift or regimes that persist; within "
    "an episode chance may be any process; no trace is reported for two episodes; the start is fixed or part of the "
    "trace, and does not depend on earlier episodes; move gives the right next states and utilities, also in states "
    "that no deployed policy reached; a trace states the random inputs in full (demand and not sales), and a policy "
    "sees the random input of a step only after its action; a candidate given by a user was fixed without "
    "knowledge of traces of later deployments, and so was the salt of the replays; the component is drawn as the "
    "weights say and acts with the probabilities that it states; every total utility is at least the least total; the "
    "incumbent's expected utility is at least threshold + slack; reports and traces are true, and may be late or lost, "
    "for any reason: what is missing counts as the worst case. Each deployed episode is compared with what move "
    "computes from its trace; a difference ends all bounds from replays. If a support is stated, chance takes only "
    f"its values. The bounds that begin at floors need this and use {ON_FLOORS:.0%} of delta; the first value "
    f"outside the support ends them. Replays without floors use {PLAIN:.0%} of delta. Observed utilities prove bounds "
    f"of their own, with {OBSERVING:.0%} of delta, and need no assumption about traces, move and support. A new "
    "incumbent or another session uses a delta of its own"
)


class Hindsight(Certifier):
    """Every deployed mixture has expected utility at least b, in all episodes together, with probability 1 − delta.

    Use it if the random inputs, such as demand, do not depend on the actions and are known afterwards. The task has
    `move`, and episodes have a `trace`. Each trace is replayed under every candidate, so every episode counts for all
    candidates, no matter which policy acted. `settings()` states the assumptions.

    Args:
        delta: the probability with which some deployed mixture may be below b.
        window: n, to forget: after every n deployments all bounds begin again with the full delta, and the promise is
            for each block of n deployments by itself. None for one promise for all episodes.
        recent: a plan must also reach the limits in the mean of its last replays, up to so many. This is a heuristic.
            None for no such test.

    Attributes:
        observed: the bounds from deployed episodes by themselves, without replays.
        replays: replays of the task.
        refuted: why bounds from replays are invalid; "" while every deployed episode agrees with `move`.
        surprised: the first value of chance outside the support, which ended all floors; "" if there was none.
        num_episodes, num_traces: episodes reported, and those that had a trace.
    """

    name: ClassVar[str] = "hindsight"
    uses_traces, replay_prefix = True, ""

    def __init__(self, delta: float = 0.05, window: int | None = None, recent: int | None = None) -> None:
        self.delta = as_probability("delta", delta)
        self.observed = Observation(OBSERVING * self.delta, window)
        self.parts = (self.observed,)
        self.recent = None if recent is None else as_count("recent", recent)
        self._replayed: deque[dict[str, Array]] = deque(maxlen=self.recent)  # total utilities (m,) by candidate
        self.refuted = self.surprised = ""
        self.num_episodes = self.num_traces = 0
        self.next_proposal, self.next_choice = FIRST, 0
        self._plan: Plan | None = None  # in force until the next choice

    def __repr__(self) -> str:
        given = {"window": self.observed.window, "recent": self.recent}
        return f"Hindsight(delta={self.delta:g}{''.join(f', {k}={v}' for k, v in given.items() if v is not None)})"

    def start(self, task: Task) -> None:
        """Bind the certifier to a task."""
        text = (
            "Hindsight replays random inputs: give the problem move=(h, state, action, w) -> (next state, "
            "reward, utility), or use es.certify.Observation()"
        )
        require(task.move is not None or task.num_actions is None, text)
        super().start(task)
        m, largest = task.num_constraints, None if task.horizon is None else float(task.horizon)
        plain, floors = (
            Accounts(task, share * self.delta, NUM_ROWS, BET_WEIGHTS, largest=largest, fineness=fineness / math.sqrt(m))
            for share, fineness in ((PLAIN, PLAIN_FINENESS), (ON_FLOORS, FINENESS))
        )
        self.trials = Trials(task, plain, floors, observed=self.observed.accounts)
        self.use_salt(secrets.token_hex(16))

    def use_salt(self, salt: str) -> None:
        """Draw the actions of randomised policies in replays from this private salt, where states are not listed."""
        if self.task.move is not None:
            self.replays = replays_of(self.task, salt)

    @property
    def accounts(self) -> Accounts:
        """Return the bounds of each candidate from replays, which start at its floor while floors are facts.

        Once replays are refuted, return those from observed totals.
        """
        return self.trials.accounts

    def least_totals(self, policy: Policy) -> Array | None:
        """Return the least totals (m,) of a policy over all traces in the support; None if unknown."""
        floors = self.replays.least_totals(policy) if self._knows_floors else None
        return None if floors is None else np.maximum(floors, self.task.least_totals)

    @property
    def _knows_floors(self) -> bool:
        return self.task.move is not None and not self.surprised and not self.refuted

    def sure_totals(self, candidate: Candidate) -> Array:
        """Return totals (m,) that no episode of a policy falls below, by its replays over the support."""
        found = self.replays.least_totals(candidate.policy, sure=True) if self._knows_floors else None
        return self.task.least_totals if found is None else np.maximum(found, self.task.least_totals)

    def settings(self) -> Settings:
        """Return delta and the statement."""
        found = promise(self.name, self.delta, ASSUMES, window=self.observed.window)
        return found if self.recent is None else found | {"recent": self.recent}

    # when to try which candidate

    def goal(self) -> Goal | None:
        """Return the limits when it is time for a proposal."""
        if self.refuted:
            return self.observed.goal()
        due = not self.invalid_reason and self.num_traces >= self.next_proposal
        return Goal(self.task.thresholds) if due else None

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return the proposal whose best mixture has the best forecast; None if no proposal improves the mixture."""
        if self.refuted:
            return self.observed.consult(proposer)
        if self.goal() is None or not isinstance(proposer, TraceProposer) or not proposer.num_traces:
            return None
        self._wait()
        found = named(self._most_promising(proposer), self.observed.number_of_next)
        if found is None:
            return None
        totals = proposer.totals([found.policy])[0]
        return replace(
            found, statistics=replay_statistics(self.task, totals) | {REPLAYED_REWARD: float(totals[:, 0].sum())}
        )

    def postpone(self) -> None:
        """Do not ask for a proposal again before there are 60 % more traces."""
        super().postpone()
        self._wait()

    def _wait(self) -> None:
        self.next_proposal = math.ceil(GROWTH * max(self.num_traces, 1))

    def _most_promising(self, proposer: TraceProposer) -> Candidate | None:
        """Return the proposal that is forecast to be best after three times as many further traces."""
        accounts, n = self.accounts, len(self.accounts.names)
        b, ahead = self.task.thresholds, math.ceil(AHEAD * proposer.num_traces)
        recent = max(proposer.num_traces - 8 * MOST_TRACES, 0)
        in_use, scores, lower = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1), np.zeros((n + 1, len(b)))
        in_use[accounts.rows] = 1
        for i in accounts.rows:
            policy, lower[i] = self.trials.policies[i], accounts.wealth.lower[i]
            assert policy is not None
            totals = proposer.totals([policy], recent)[0]
            scores[i] = totals[:, 0].mean()
            if i:
                lower[i] = self._forecast(totals, ahead, i)
        most, found = float(best_weights(scores, lower, b, in_use, 0) @ scores), None
        in_use[n] = 1
        for candidate, totals in proposer.proposals([b + share * self.task.slacks for share in AIMS]):
            if self.below_floor(candidate):
                continue
            floors = self.least_totals(candidate.policy)
            scores[n], lower[n] = candidate.reward, self._forecast(totals, ahead, floors=floors)
            value = float(best_weights(scores, lower, b, in_use, 0) @ scores)
            if value > most:
                most, found = value, replace(candidate, least_totals=floors)
        return found

    def _forecast(self, totals: Array, ahead: int, row: int = 0, floors: Array | None = None) -> Array:
        """Return the forecast bounds (m,) after further traces, if their totals are like these (n, 1 + m).

        They are for the candidate in a row; row 0 stands for a new candidate with these floors.
        """
        accounts, found = self.accounts, np.zeros(len(self.task.thresholds))
        wealth, step = accounts.wealth, max(len(totals) // MOST_TRACES, 1)
        for c, least in enumerate((self.task.least_totals if floors is None else floors).tolist()):
            if row:
                above, least = wealth.reached[row, c] + 1, float(wealth.least[row, c])
                means, log_term = wealth.means[row, c, above:], float(wealth.log_term[row, c])
                logs = wealth.logs[row, c, above:] + np.log(wealth.products[row, c, above:])
            else:
                means, log_term = accounts.grid(c, least), accounts.log_term(accounts.num_candidates + 1)
                logs = np.tile(np.log(len(BETS) * BET_WEIGHTS), (len(means), 1))
            utilities = np.ascontiguousarray(totals[::step, 1 + c])
            bound = forecast_bound(means, logs, BETS, utilities, ahead, log_term, least, LARGEST)
            found[c] = max(bound, wealth.lower[row, c]) if row else bound
        return found

    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial; only traces of later deployments count for it."""
        is_proposal = candidate.name.startswith(PROPOSAL)
        guess = candidate.reward if is_proposal and math.isfinite(candidate.reward) else float(self.task.horizon or 1)
        self._plan = None
        if self.surprised:  # its floor was computed before the support was known to be false
            candidate = replace(candidate, least_totals=None)
        if not self.refuted:
            row = self.trials.add(candidate, guess)
            known = candidate.statistics
            self.trials.ranking.rewards[row] = known.get(REPLAYED_REWARD, 0.0), known.get(REPLAYS, 0.0)
            if is_proposal:
                self._wait()
        self.observed.add(replace(candidate, least_totals=None))  # floors are facts of replays

    # deployments and evidence

    def plan(self) -> Plan:
        """Return the best mixture whose bounds reach the limits; the incumbent if the certificate is invalid."""
        if self.invalid_reason:
            return self.fallback(self.invalid_reason)
        if self.refuted:
            return self.observed.plan()
        if self._plan is None or self.num_episodes >= self.next_choice:
            step = 1 if self.num_episodes < EVERY_EPISODE else self.num_episodes // 64
            self.next_choice = self.num_episodes + step
            self._plan = self.trials.choose(0)
        return self._plan if self.recent is None else self._recently_safe(self._plan)

    def _recently_safe(self, plan: Plan) -> Plan:
        """Return the plan, or the incumbent if the mean of the plan's last replays is below a limit."""
        parts = plan.parts
        totals = [
            parts.weights @ [one[i] for i in parts.names] for one in self._replayed if one.keys() >= {*parts.names}
        ]
        if totals and (np.mean(totals, axis=0) < self.task.thresholds).any():
            return self.fallback(f"the mean of its last {len(totals)} replays is below a limit")
        return plan

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as the worst case for every candidate on trial, until its trace is reported."""
        self.observed.deployed(deployment, plan, component)
        if not self.refuted:
            for accounts in self.trials.sets:
                accounts.expect(deployment, self.accounts.rows)
            if self.observed.begins_block:
                self.trials.begin_block()
                self._plan = None

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the replays of each candidate, and the evidence of the episode itself about its components.

        An episode without states, as after actions by a person, is no evidence about its components: it stays at its
        worst. Raise InvalidEpisode if the episode does not fit the deployment, or if `move` fails on the report.
        """
        plan_of(self.observed._plans, deployment)
        names, totals, fault, surprise = list[str](), np.zeros((0, 1 + self.task.num_constraints)), "", ""
        if episode.trace is not None and not self.refuted and self.task.move is not None:
            trace, fault = self.replays.judge(episode)
            if not fault:
                names, policies = self.trials.listed(self.accounts.rows)
                totals = self.totals_of(policies, [trace], [deployment])[:, 0]
                surprise = "" if self.surprised else self.replays.surprise_of(episode, trace)
        shares = np.ones(len(names))
        found = Evidence(tuple(names), shares, totals[:, 1:], totals[:, 0], fault=fault, surprise=surprise)
        if episode.states is None:
            return found
        return found + self.observed.evidence(deployment, episode).renamed(lambda name: OBSERVED + name)

    def totals_of(self, policies: Sequence[Policy], traces: Traces, keys: Sequence[int]) -> Array:
        """Return total reward and utilities (n, E, 1 + m) of policies on each trace.

        A trace that cannot be replayed counts as the least total, or as the utility so far if that is more.
        """
        totals, least = self.replays.totals(policies, traces, keys), self.task.least_totals
        utilities, incomplete = totals[:, :, 1:-1], totals[:, :, -1:] > 0
        totals[:, :, 1:-1] = np.where(incomplete, np.maximum(utilities, least), utilities)
        return totals[:, :, :-1]

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Credit every candidate with its replay, and the components with the observed totals."""
        seen = evidence.where(lambda name: name.startswith(OBSERVED))
        self.observed.apply(deployment, seen.renamed(lambda name: name.removeprefix(OBSERVED)))
        self.num_episodes += 1
        replayed = evidence.where(lambda name: not name.startswith(OBSERVED))
        if evidence.fault:
            self.void(f"an episode differs from what move computes from its trace: {evidence.fault}")
        elif replayed.names and not self.refuted:
            if evidence.surprise:
                self._end_floors(evidence.surprise)
            rows, found = self.accounts.known(replayed)
            for accounts, utilities in self.above_floors(rows, found.utilities):
                accounts.credit(deployment, rows, found.shares, utilities)
            self.trials.credit(rows, found)
            self.num_traces += 1
            if self.recent is not None:
                self._replayed.append(dict(zip(replayed.names, replayed.utilities, strict=True)))

    def replayed(self, episodes: Sequence[Episode]) -> tuple[tuple[str, ...], Array]:
        """Return the candidates and their total utilities (n, E, m) on the traces of logged episodes."""
        traces = []
        for number, episode in enumerate(episodes):
            if episode.trace is None:
                raise InvalidEpisode(f"logged episode {number} has no trace: record chance in every step")
            trace, fault = self.replays.judge(episode)
            fault = fault or ("" if self.surprised else self.replays.surprise_of(episode, trace))
            if fault:
                raise InvalidEpisode(f"logged episode {number} differs from what move computes: {fault}")
            traces.append(trace)
        names, policies = self.trials.listed(self.accounts.rows[1:])
        totals = self.totals_of(policies, traces, range(-len(traces), 0))  # keys that no deployment has
        return tuple(names), totals[:, :, 1:]

    def read_log(self, names: Sequence[str], shares: Array, utilities: Array) -> None:
        """Add logged traces before the first deployment."""
        rows = np.array([self.accounts.row(name) for name in names])
        for accounts, raised in self.above_floors(rows, utilities):
            accounts.read_log(rows, shares, raised)
        self.num_traces += shares.shape[1]
        self._plan = None

    def above_floors(self, rows: IntArray, utilities: Array) -> Iterator[tuple[Accounts, Array]]:
        """Yield each set of accounts with the replayed totals (R, …, m) for it.

        Where sequences start at floors, totals of replays that stopped early are raised to the floor.
        """
        for accounts in self.trials.sets:
            least = accounts.wealth.least[rows].reshape(len(rows), *[1] * (utilities.ndim - 2), -1)
            yield accounts, utilities if accounts is self.trials.sets[0] else np.maximum(utilities, least)

    def _end_floors(self, reason: str) -> None:
        """Use the plain sequences from now on: chance left its support, so floors are no longer facts."""
        self.surprised, self._plan = reason, None
        del self.trials.sets[1:]
        if not self.accounts.is_certified(self.trials.base):
            self.trials.base = 0

    def bounds(self) -> dict[str, Array]:
        """Return the bounds (m,) of each candidate, from replays or from observed totals."""
        lower = self.trials.lower
        return {self.accounts.names[i]: lower[i].copy() for i in self.accounts.rows}

    def proves(self, plan: Plan) -> Array:
        """Return the bounds (m,) that are proved for a plan now, computed as in the check."""
        return self.trials.proves(plan, self.trials.lower)

    def promote(self, name: str) -> None:
        """Let a certified candidate act wherever the incumbent would."""
        self.require_on_trial(name, INCUMBENT)
        self.trials.promote(name)
        self._plan = None

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        self.require_on_trial(name)
        if self.observed.accounts.row(name) > 0:
            self.observed.withdraw(name)
        self.trials.withdraw(name)
        self._plan = None

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other thresholds and slacks from now on."""
        self.observed.change(constraints)
        self.task = self.trials.task = self.observed.task
        for accounts in self.trials.sets:
            accounts.change(self.task.thresholds, self.task.stated_utilities)
        self._plan = None

    def restart(self) -> None:
        """End all trials, because conditions have changed, and ask for a proposal at once."""
        super().restart()
        self.next_proposal = self.num_traces

    def void(self, reason: str) -> None:
        """Note that bounds from replays are invalid; observed totals still count, with their share of delta.

        A promotion stays if the observed totals certify it.
        """
        if self.refuted or self.trials.sets[0].invalid_reason:
            return
        promoted = self.accounts.names[self.trials.base]
        self.refuted, self._plan, self.trials = reason, None, self.observed.trials
        row = self.accounts.row(promoted)
        if row > 0 and self.accounts.is_certified(row):
            self.trials.promote(promoted)

    @property
    def invalid_reason(self) -> str:
        """Return why the certificate is invalid; "" while it is valid."""
        return self.observed.invalid_reason or self.trials.sets[0].invalid_reason
