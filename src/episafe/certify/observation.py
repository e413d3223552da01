"""A certificate from observed utilities alone: mixtures, and a confidence sequence for each policy on trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from episafe.certify.base import Deployment
from episafe.checks import TOLERANCE, as_probability
from episafe.errors import InvalidEpisode
from episafe.kernels.confidence_sequence import BETS, blank_trials, credit
from episafe.kernels.mixture_choice import choose, score
from episafe.learning.planner import Aim, Proposal
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled_problem import AnyTask, known_slack
from episafe.storage.state_reader import Saved, State, under
from episafe.types import IntArray, Level

INCUMBENT = "incumbent"  # what mixtures call row 0; candidate j is "proposal-j"

# These touch the regret and never the guarantee; set on the released problems of seeds 1000 to 1033.
NUM_ROWS = 6  # policies on trial at once, with the incumbent
SHORTEST_TRIAL = 60  # episodes
TRIAL_SHARE = 0.5  # a trial lasts half as long as all that was before it, if that is longer
FIRST_MARGIN = 1 / 3  # of the slack: how far above b the first proposal aims
CURIOUS, OPTIMISM = 3, 0.3  # every third proposal is optimistic in the utility too, or what was never tried never is

Weighed = tuple[list[int], list[float], float, float]  # rows of the policies that may have acted, shares, totals


@dataclass(frozen=True)
class Observation:
    """Every deployed mixture has expected utility at least b, in all episodes at once, with probability 1 − delta.

    It assumes: total utilities are ≥ 0; given what is deployed, episodes are independent and all alike, without drift;
    the component is drawn by the coin, and acts with the probabilities that it states; every episode is reported, once;
    the incumbent has V^u ≥ b + slack. It does not assume: features, a Markov state, a fixed start, or a known utility:
    report `utilities` with every episode, or with none if the task's are true.

    The promise is over the coin. A component that is still on trial may itself be below b: who cannot accept that
    uses `FreshData`.

    Args:
        delta: the probability with which some deployed mixture may be below b.
    """

    delta: float = 0.05
    name: ClassVar[str] = "observation"
    mixes: ClassVar[bool] = True  # it deploys mixtures
    level: ClassVar[Level] = "theorem"

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", as_probability("delta", self.delta))

    def begin(self, task: AnyTask) -> "ObservationCertificate":
        """A certificate for this task, with nothing on trial yet."""
        return ObservationCertificate(task, self.delta)

    def settings(self) -> dict[str, str | int | float]:
        """The certifier, its delta and what is proved."""
        statement = (
            f"every deployed mixture has expected utility at least b, in all episodes together, with probability "
            f"{1 - self.delta:g}, if episodes are independent and alike, each is reported once, utilities are not "
            f"negative, and the incumbent has b + slack"
        )
        return {"certifier": self.name, "delta": self.delta, "statement": statement}


class ObservationCertificate:
    """The policies on trial and the confidence sequence of each.

    The formulas are in `kernels.confidence_sequence` and `kernels.mixture_choice`.

    Candidate j = 1, 2, … has δ_j = δ/(j(j+1)), which sum to δ.
    """

    def __init__(self, task: AnyTask, delta: float) -> None:
        self.task, self.delta = task, delta
        self.trials = blank_trials(NUM_ROWS)
        self.trials.lower[0], self.trials.in_use[0] = task.threshold + known_slack(task), 1
        self.policies: list[Policy | None] = [task.safe_policy] + [None] * (NUM_ROWS - 1)
        self.lams = [math.nan] * NUM_ROWS
        self.num_candidates = 0
        self.num_episodes = 0
        self.trial_ends = 0

    def is_due(self) -> bool:
        """Always: every episode moves the bounds, and so the weights."""
        return True

    def wants_candidate(self) -> bool:
        """Whether the newest candidate has had its trial."""
        return self.num_episodes >= self.trial_ends

    def aim(self) -> Aim:
        """b + (ξ/3)(1 + k/60)^{-1/2}: a margin that shrinks as a confidence bound does."""
        margin = FIRST_MARGIN * known_slack(self.task) / math.sqrt(1 + self.num_episodes / SHORTEST_TRIAL)
        curious = (self.num_candidates + 1) % CURIOUS == 0
        return self.task.threshold + margin, OPTIMISM if curious else 0.0

    def consider(self, proposal: Proposal) -> None:
        """Put a proposal on trial, in a free row or in place of the least useful policy."""
        trials, i = self.trials, self._row()
        self.num_candidates += 1
        j = self.num_candidates
        self.policies[i], self.lams[i] = proposal.policy, proposal.lam
        proposal.policy.name = f"proposal-{j}"
        trials.sums[i], trials.lower[i], trials.guess[i], trials.in_use[i] = 0, 0, proposal.reward, 1
        trials.log_term[i] = math.log(len(BETS) * j * (j + 1) / self.delta)
        trials.newest[0] = i
        trial = max(SHORTEST_TRIAL, math.floor(TRIAL_SHARE * self.num_episodes))
        self.trial_ends = self.num_episodes + trial

    def deployment(self) -> Deployment:
        """The best mixture whose bound reaches the threshold."""
        return self.as_deployment(*choose(self.trials, self.task.threshold, self.num_episodes))

    def as_deployment(self, first: int, second: int, weight: float, bound: float) -> Deployment:
        """The mixture weight·first + (1 − weight)·second of two rows."""
        candidate, payer = self.policies[first], self.policies[second]
        assert candidate is not None and payer is not None
        if first == second == 0:
            return Deployment(candidate, "safe", math.nan, math.nan, "no mixture with a candidate seems better")
        if first == second:
            return Deployment(candidate, "search", self.lams[first], bound)
        names = [INCUMBENT if i == 0 else policy.name for i, policy in ((first, candidate), (second, payer))]
        mixture = MixturePolicy((candidate, payer), (weight, 1 - weight), names)
        return Deployment(mixture, "search", self.lams[first], bound)

    def weigh(self, policy: Policy, states: Any, actions: IntArray, utility: float, reward: float) -> Weighed:
        """The shares of the components in an episode; what they cannot have done is refused."""
        if not utility >= -TOLERANCE * self.task.horizon:
            raise InvalidEpisode(f"the utilities of an episode must sum to 0 or more, got {utility}: shift and rescale")
        shares = self._shares(policy, states, actions)
        rows = [self._row_of(component) for component in policy.components]
        return rows, shares, max(utility, 0.0), reward

    def take_in(self, weighed: Weighed) -> None:
        """Credit the policies that may have acted; those no longer on trial are forgotten."""
        rows, shares, utility, reward = weighed
        for i, share in zip(rows, shares, strict=True):
            if i >= 0:
                credit(self.trials, i, share, utility, reward)
        self.num_episodes += 1

    def state(self, policies: PolicyArrays) -> State:
        """The trials, and which policies they are of."""
        own = {
            "policies": np.array([policies.number(policy) for policy in self.policies], dtype=np.int64),
            "lams": np.array(self.lams),
            "num_candidates": self.num_candidates,
            "num_episodes": self.num_episodes,
            "trial_ends": self.trial_ends,
        }
        return under("certificate", {**self.trials._asdict(), **own})

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        trials, known = self.trials, self.trials.lower[0]
        rows = saved.wholes("policies", (NUM_ROWS,), -1, len(policies)).tolist()
        self.policies = [None if i < 0 else policies[i] for i in rows]
        for name in ("sums", "lower", "log_term", "guess"):
            array = getattr(trials, name)
            array[:] = saved.numbers(name, array.shape, least=-np.inf if name in ("sums", "guess") else 0)
        trials.in_use[:] = saved.wholes("in_use", (NUM_ROWS,), 0, 2)
        trials.newest[:] = saved.wholes("newest", (1,), 0, NUM_ROWS)
        self.lams = saved.numbers("lams", (NUM_ROWS,), nan=True).tolist()
        self.num_candidates, self.num_episodes = saved.whole("num_candidates"), saved.whole("num_episodes")
        self.trial_ends = saved.whole("trial_ends")
        if [int(policy is not None) for policy in self.policies] != trials.in_use.tolist():
            saved.refuse("in_use", "does not say which rows have policies")
        if self.policies[0] is not self.task.safe_policy or trials.lower[0] != known:
            saved.refuse("lower", "does not begin with the incumbent and its b + ξ")

    def _shares(self, mixture: Policy, states: Any, actions: IntArray) -> list[float]:
        """q_i ∝ w_i Π_h π_i(a_h|s_h), the largest kept at 1 from step to step: long products would come out as 0."""
        chances = [float(weight) for weight in mixture.weights]
        for h, (state, action) in enumerate(zip(states, actions, strict=False)):  # the last state has no action
            for i, policy in enumerate(mixture.components):
                row = policy.table()[h, state] if self.task.is_listed else policy.probabilities(h, state)
                chances[i] *= float(row[action])
            largest = max(chances)
            if not largest > 0:
                raise InvalidEpisode(
                    "the deployed policy never acts like this: report the episode with its own plan_id"
                )
            chances = [chance / largest for chance in chances]
        total = sum(chances)
        return [chance / total for chance in chances]

    def _row_of(self, policy: Policy) -> int:
        return next((i for i, on_trial in enumerate(self.policies) if on_trial is policy), -1)

    def _row(self) -> int:
        """A free row, or that of the policy of least score − (b − L)₊, never the incumbent's."""
        trials = self.trials
        free = np.flatnonzero(trials.in_use == 0)
        if len(free):
            return int(free[0])
        shortfall = np.maximum(self.task.threshold - trials.lower, 0)
        trials.newest[0] = 0  # the newest one is now judged by what it did
        worth = np.array([score(trials, i) for i in range(NUM_ROWS)]) - shortfall
        return 1 + int(np.argmin(worth[1:]))
