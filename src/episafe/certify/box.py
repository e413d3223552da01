"""A certificate for all policies at once: a confidence box of the transition kernel that holds at all times.

With probability 1 − δ the true kernel is in the box, in all episodes together. Then the least utility of a policy over
the box is below its true utility, whatever the policy and however it was found: candidates, mixtures and replans cost
nothing. docs/theory-certificates.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from episafe.certify.base import INCUMBENT, PROPOSAL, Deployable, ReportedEpisode, require_told
from episafe.certify.ordered_reports import OrderedReports
from episafe.checks import TOLERANCE, as_probability
from episafe.kernels.mixing import admits, admits_all
from episafe.kernels.transition_box import tighten
from episafe.learning.box_problem import BoxProblem, Candidate
from episafe.learning.multiplier_search import smallest_passing
from episafe.learning.planner import Aim, Proposal
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.model_answers import markov_policy, occupancy
from episafe.problems.policy import MixturePolicy, Policy, TablePolicy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Amount, Array, IntArray, Level, amount, amounts

GROWTH = 1.1  # of the number of episodes between plans: about 80 plans in 10⁴ episodes
HALVINGS = 12  # of the share of the safer policy: to 2.4e-4

Transitions = tuple[IntArray, IntArray]  # states (H+1,) and actions (H,) of an episode
Mixed = Sequence[tuple[float, Array]]  # the tables of a mixture, each with its share
Weighed = tuple[int | None, Transitions]  # and the number of its deployment, where a session counts them


@dataclass(frozen=True)
class Box:
    """Every deployed policy has expected utility at least b, in all episodes at once, with probability 1 − delta.

    It assumes: the states are listed and Markov, and the first one is fixed; steps are alike where the task says so;
    the utility is known; episodes are independent given the policy, without drift; every episode is reported, once; the
    incumbent has V^u ≥ b + slack. It does not assume features.

    Where there are several constraints, it is so for each: the box is about the kernel, so that known utilities cost no
    more δ, and mixtures have at most m + 1 policies.

    As soon as the box proves any policy safe, what is deployed is a Markov policy that is safe by itself. Before that
    it is a mixture of a candidate and the incumbent, and the promise is over the coin.

    Args:
        delta: the probability with which some deployed policy may be below b.
    """

    delta: float = 0.05
    name: ClassVar[str] = "box"
    mixes: ClassVar[bool] = True  # it deploys mixtures
    level: ClassVar[Level] = "theorem"

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", as_probability("delta", self.delta))

    def begin(self, task: AnyTask) -> "BoxCertificate":
        """A certificate for this task, to which every kernel is possible."""
        if not task.is_listed:
            raise TypeError("Box counts every (s, a, s'): it needs listed states; else use Observation")
        return BoxCertificate(task, self.delta)

    def settings(self) -> dict[str, str | int | float]:
        """The certifier, its delta and what is proved."""
        statement = (
            f"every deployed policy, or mixture over its coin, has expected utility at least b, in all episodes "
            f"together, with probability {1 - self.delta:g}, if the listed states are Markov from a fixed start, steps "
            f"are alike where the task says so, its utility is true, episodes are independent and alike, each is "
            f"reported once, and the incumbent has b + slack"
        )
        return {"certifier": self.name, "delta": self.delta, "statement": statement}


class BoxCertificate:
    """The counts, the box, and what it allows.

    Attributes:
        counts: how often (h, s, a) led to s', (steps, S, A, S); one step where the task's are alike.
        lower, upper: the box, which only ever shrinks.
        known: b + ξ, which the incumbent has.
    """

    needs_names: ClassVar[bool] = True  # the order of what is counted must not depend on what came of it

    def __init__(self, task: Task, delta: float) -> None:
        S, A = task.num_states, task.num_actions
        self._num_counted = task.horizon if task.time_homogeneous else task.horizon - 1  # the last step leads nowhere
        steps = 1 if task.time_homogeneous else max(self._num_counted, 1)
        self.task, self.delta, self.known = task, delta, task.limits + amount(known_slacks(task))
        self.counts: Array = np.zeros((steps, S, A, S))
        self.lower: Array = np.zeros(self.counts.shape)
        self.upper: Array = np.ones(self.counts.shape)
        self.num_episodes = self.num_plans = self.next_plan = 0
        self._signals: Array = np.stack([task.reward, *task.utilities])
        self._reports: OrderedReports[Transitions] = OrderedReports()
        self._proposal: Policy | None = None
        self._candidates: list[tuple[Policy, Array]] = []  # those of somebody else, and their tables

    def is_due(self) -> bool:
        """Whether there are so many episodes more that the box may have shrunk."""
        return self.num_episodes >= self.next_plan

    def wants_candidate(self) -> bool:
        """Whether a plan is due: a proposal is then compared with what the box itself finds."""
        return self.is_due()

    def aim(self) -> Aim:
        """b itself."""
        return Aim(self.task.limits)

    def consider(self, proposal: Proposal) -> None:
        """Make a proposal one more candidate, up to the next one: the box knows of all policies at once."""
        self._proposal = proposal.policy

    def add(self, candidate: Policy) -> None:
        """Make a policy of somebody else one more candidate, for good. It costs no δ: the box knows of all policies."""
        self._candidates.append((candidate, candidate.table()))
        self.next_plan = self.num_episodes

    def deployment(self) -> Deployable:
        """The best that the box allows now: a Markov policy, or a mixture while it proves nobody safe; of several
        constraints one of at most m + 1 policies."""
        tighten(self.counts, self._log_term(), self.lower, self.upper)
        self.num_plans += 1
        self.next_plan = max(self.num_episodes + 1, math.ceil(GROWTH * self.num_episodes))
        if self._is_empty():
            why = "no kernel fits what was seen: episodes are not independent and alike"
            return Deployable.alone(self.task.safe_policy, why)
        return self._best_of_one() if self.task.num_constraints == 1 else self._best_of_several()

    def _best_of_one(self) -> Deployable:
        b, problem = self.task.threshold, self._problem()
        incumbent = problem.evaluated(self.task.safe_policy.table())
        others = [incumbent, *map(problem.evaluated, self._tables())]
        _, bound, parts, lam = problem.best_mixture(b, *others)
        if admits(bound, b):
            (_, bolder), (_, table) = parts
            markov = safer = problem.evaluated(table)
            if bolder is not table:
                markov = self._drawn_back(problem, self._between([(1.0, bolder)], table), safer)
            return self._as_markov(markov, lam, incumbent.policy)
        others[0] = incumbent._replace(utility=self.known)
        _, bound, parts, lam = problem.best_mixture(b, *others)
        return self._as_mixture(bound, parts, lam, incumbent.policy)

    def _best_of_several(self) -> Deployable:
        thresholds, problem = amounts(self.task.limits), self._problem()
        incumbent = problem.evaluated(self.task.safe_policy.table())
        proposed = [*map(problem.evaluated, self._tables())]
        safest = problem.safest(thresholds, incumbent, *proposed)
        if admits_all(safest.utility, thresholds):
            _, parts, multipliers = problem.best_mixture_of_several(thresholds, safest, incumbent, *proposed)
            between = self._between(parts, safest.policy)
            markov = problem.evaluated(between(0.0))
            if not admits_all(markov.utility, thresholds):
                markov = self._drawn_back(problem, between, safest)
            return self._as_markov(markov, float(multipliers.sum()), incumbent.policy)
        known = incumbent._replace(utility=np.maximum(self.known, incumbent.utility))
        bounds, parts, multipliers = problem.best_mixture_of_several(thresholds, known, *proposed)
        return self._as_mixture(bounds, parts, float(multipliers.sum()), incumbent.policy)

    def _tables(self) -> list[Array]:
        """Those of the candidates, which are preferred where they are as good, and of the last proposal."""
        proposed = [] if self._proposal is None else [self._proposal.table()]
        return [*(table for _, table in self._candidates), *proposed]

    def expect(self, policy: Policy, deployment: int, plan_id: int = 0) -> None:
        """A session has deployed this policy, and will say by this number what came of it, if it is ever told."""
        self._reports.expect(deployment)

    def abandon(self, deployment: int) -> None:
        """Nothing will ever be known of this deployment: no later one counts."""
        self._reports.abandon(deployment)

    def lose(self, num_candidates: int) -> None:
        """Deployments are lost, and nothing after them counts: what the box knows, it knows."""
        self._reports.end()

    def bounds(self) -> dict[str, Amount]:
        """What is proved of the incumbent and of candidates; of what is deployed, the plan says it."""
        problem = self._problem()
        proved = problem.evaluated(self.task.safe_policy.table()).utility
        known = amount(np.maximum(amounts(self.known), amounts(proved)))
        return {INCUMBENT: known} | {one.name: problem.evaluated(table).utility for one, table in self._candidates}

    def judge(self, policy: Policy, outcome: ReportedEpisode) -> Weighed:
        """The episode as it is, with the number of its deployment. What contradicts the task is refused."""
        states, actions = require_told("Box", self.task, outcome)
        return outcome.deployment, (np.array(states), np.array(actions))

    def take_in(self, weighed: Weighed) -> None:
        """Count the transitions of the episodes whose turn has come."""
        for states, actions in self._in_turn(*weighed):
            for h in range(self._num_counted):
                self.counts[min(h, len(self.counts) - 1), states[h], actions[h], states[h + 1]] += 1
            self.num_episodes += 1

    def _in_turn(self, deployment: int | None, episode: Transitions) -> list[Transitions]:
        """The order: the proof counts deployments as they were made, and none after the oldest without a report.

        Where nobody counts deployments, reports are taken as they come, and the statement says what that assumes.
        """
        return [episode] if deployment is None else self._reports.take(deployment, episode)

    def state(self, policies: PolicyArrays) -> State:
        """Counts and box, when the next plan is due, and the reports whose turn has not come."""
        H, waiting = self.task.horizon, self._reports.waiting
        none = np.full(H + 1, -1), np.full(H, -1)
        held = [none if episode is None else episode for episode in waiting.values()]
        own = {
            "counts": self.counts,
            "lower": self.lower,
            "upper": self.upper,
            "num_episodes": self.num_episodes,
            "num_plans": self.num_plans,
            "next_plan": self.next_plan,
            "proposal": policies.number(self._proposal),
            "candidates": np.array([policies.number(one) for one, _ in self._candidates], dtype=np.int64),
            "waiting": np.array(list(waiting), dtype=np.int64),
            "waiting_states": np.array([states for states, _ in held], dtype=np.int64).reshape(-1, H + 1),
            "waiting_actions": np.array([actions for _, actions in held], dtype=np.int64).reshape(-1, H),
            "ended": self._reports.ended,
        }
        return under("certificate", own)

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        shape = self.counts.shape
        self.counts, self.lower, self.upper = (
            saved.numbers(name, shape, least=0) for name in ("counts", "lower", "upper")
        )
        if (self.lower > 1).any() or (self.upper > 1).any():
            saved.refuse("upper", "holds what is no probability")
        self.num_episodes, self.num_plans = saved.whole("num_episodes"), saved.whole("num_plans")
        whole = (self.counts == np.round(self.counts)).all()
        if not whole or self.counts.sum() != self.num_episodes * self._num_counted:
            saved.refuse("counts", f"does not hold the transitions of {self.num_episodes} episodes")
        self.next_plan, proposed = saved.whole("next_plan"), saved.whole("proposal", -1, len(policies))
        self._proposal = None if proposed < 0 else policies[proposed]
        for i in saved.wholes("candidates", (None,), 0, len(policies)).tolist():
            self._candidates.append((policies[i], policies[i].table()))
        self._restore_waiting(saved)

    def _restore_waiting(self, saved: Saved) -> None:
        task, numbers = self.task, saved.wholes("waiting", (None,), 0, 2**62).tolist()
        states = saved.wholes("waiting_states", (len(numbers), task.horizon + 1), -1, task.num_states)
        actions = saved.wholes("waiting_actions", (len(numbers), task.horizon), -1, task.num_actions)
        gone = np.asarray((states < 0).all(axis=1) & (actions < 0).all(axis=1))
        if (states[~gone] < 0).any() or (actions[~gone] < 0).any():
            saved.refuse("waiting_states", "has half an episode")
        self._reports.ended = bool(saved.flags("ended", ()))
        for i, number in enumerate(numbers):
            self._reports.waiting[number] = None if gone[i] else (states[i], actions[i])

    def _log_term(self) -> float:
        """ln(1/δ') with δ' = δ/(steps·S²A): each entry of the kernel has its share."""
        return math.log(self.counts.size / self.delta)

    def _is_empty(self) -> bool:
        """Whether there is no kernel in the box, beyond rounding."""
        sums = self.lower.sum(axis=-1) > 1 + TOLERANCE, self.upper.sum(axis=-1) < 1 - TOLERANCE
        return bool((self.lower > self.upper).any() or sums[0].any() or sums[1].any())

    def _problem(self) -> BoxProblem:
        return BoxProblem(self._signals, self.lower, self.upper, self.task.initial_state)

    def _between(self, parts: Mixed, safer: Array) -> Callable[[float], Array]:
        """share ↦ the Markov policy that is where (1 − share)·parts + share·safer is, by estimate."""
        P_hat, start = self._estimate(), self.task.initial_state
        mass = np.add.reduce([share * occupancy(P_hat, policy, start) for share, policy in parts])
        w_safer = occupancy(P_hat, safer, start)
        return lambda share: markov_policy((1 - share) * mass + share * w_safer, safer)

    def _drawn_back(self, problem: BoxProblem, between: Callable[[float], Array], safer: Candidate) -> Candidate:
        """What is between a mixture and `safer`, which is proved safe, with as little of `safer` as suffices."""

        def passes(share: float) -> bool:
            return admits_all(problem.evaluated(between(share)).utility, self.task.limits)

        share = smallest_passing(passes, 1.0, HALVINGS)
        return problem.evaluated(between(share)) if share < 1 else safer

    def _as_markov(self, markov: Candidate, lam: float, incumbent: Array) -> Deployable:
        if markov.policy is incumbent:
            return Deployable.alone(self.task.safe_policy, "no policy that the box proves safe seems better")
        return Deployable(self._named(markov.policy), "search", lam, markov.utility)

    def _as_mixture(self, bound: Amount, mixed: Mixed, lam: float, incumbent: Array) -> Deployable:
        """The mixture of candidates and the incumbent, which alone is known to keep every constraint."""
        parts = [(share, policy) for share, policy in mixed if policy is not incumbent]
        if not parts:
            return Deployable.alone(self.task.safe_policy, "no mixture with a candidate seems better")
        policies = [self._named(table) for _, table in parts]
        for n, policy in enumerate(policies[1:], 1):
            if policy.name.startswith(PROPOSAL):
                policy.name = f"{policy.name}-{n}"
        shares, rest = [share for share, _ in parts], [share for share, policy in mixed if policy is incumbent]
        if len(policies) == 1 and not rest:
            return Deployable(policies[0], "search", lam, bound)
        names = [policy.name for policy in policies] + [INCUMBENT] * len(rest)
        mixture = MixturePolicy([*policies, *([self.task.safe_policy] * len(rest))], shares + rest, names)
        return Deployable(mixture, "search", lam, bound)

    def _named(self, table: Array) -> TablePolicy:
        policy = TablePolicy(table)
        names = [one.name for one, own in self._candidates if own is table]
        policy.name = names[0] if names else f"{PROPOSAL}{self.num_plans}"
        return policy

    def _estimate(self) -> Array:
        """P̂ (H, S, A, S) by the counts; uniform where there are none."""
        visits = self.counts.sum(axis=-1, keepdims=True)
        P_hat = np.where(visits > 0, self.counts / np.maximum(visits, 1), 1 / self.task.num_states)
        rows: Array = P_hat[np.minimum(np.arange(self.task.horizon), len(P_hat) - 1)]
        return rows
