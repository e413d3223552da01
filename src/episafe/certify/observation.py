"""A certificate from observed utilities alone: mixtures, and a confidence sequence for each policy on trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from episafe.certify.base import PROPOSAL, Deployable, ReportedEpisode
from episafe.certify.ledger import ledger_of
from episafe.certify.shares import shares_of
from episafe.checks import TOLERANCE, as_probability
from episafe.errors import InvalidEpisode
from episafe.learning.planner import Aim, Proposal, SoftmaxPlanner
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Amount, Level, amount, amounts

# These touch the regret and never the guarantee; set on the released problems of seeds 1000 to 1063, and on the
# inventory, battery and cloud of seeds 1000 to 1011.
NUM_ROWS = 6  # policies on trial at once, with the incumbent
SHORTEST_TRIAL = 60  # episodes
TRIAL_SHARE = 0.5  # a trial lasts half as long as all that was before it, if that is longer
LOOKS = 6  # times in a trial at which it may end
ENOUGH = 20  # episodes of its own after which a policy that loses its bets is given up
PATIENCE, LONG = 1.0, 1000  # a policy that will be proved in as many episodes as there were, or in so many, goes on
EARLY = 2  # proposals that are made in any case: the first knows nothing
FIRST_MARGIN = 0.2  # of the slack: how far above b the first proposal aims
MARGINS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7)  # those that later ones choose from
AHEAD = 6.0  # times as many episodes as there were: for these they choose
BOLD, SOBER, CURIOUS = range(3)
KINDS = (BOLD, SOBER, CURIOUS, BOLD)  # of proposals, in turn
SOBERNESS = 0.1  # of the reward's bonus: what seems best, where a bold one goes to see
OPTIMISM = 0.3  # a curious one is optimistic in the utility too, or what was never tried never is
THIN = 0.1  # a step: where less than this can be earned the bonus of the reward shrinks with it,
LEAST_BOLD = 0.05  # to this part; both set on FrozenLake 8×8 of seeds 100 to 111
FEW = 3  # episodes of its own that say something of a policy's reward
DISCOUNT = 0.35  # of what the last proposal of the same kind fell short of its promise

# The number of the deployment, rows of the policies that may have acted, their shares, totals, and whether it is named.
Weighed = tuple[int | None, list[int], list[float], Amount, float, bool]


@dataclass(frozen=True)
class Observation:
    """Every deployed mixture has expected utility at least b, in all episodes at once, with probability 1 − delta.

    It assumes: total utilities are ≥ 0, or the least_total of the task; given its plan, an episode is independent of
    all that came before, reported or not, and all are alike, without drift; the component is drawn by the coin, and
    acts with the probabilities that it states; the incumbent has V^u ≥ b + slack. In a session (`es.open`) reports may
    come late or never, whatever came of them: what is not reported counts at its worst. A bare agent counts no
    deployments: with it every episode must be reported, once, and neither whether nor when may depend on what came of
    it. It does not assume: features, a Markov state, a fixed start, or a known utility: report `utilities` with every
    episode, or with none if the task's are true.

    Where there are m constraints, it is so for each: candidate j has m sequences at δ_j/m, and what is deployed is the
    best mixture of at most m + 1 policies whose bounds reach every threshold.

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
            f"{1 - self.delta:g}, if each episode is independent of all before it and they are alike, the coin is "
            f"tossed as the weights say, total utilities are not negative, and the incumbent has b + slack; reports "
            f"may be late or lost in a session, which counts deployments, and without one each comes once"
        )
        return {"certifier": self.name, "delta": self.delta, "statement": statement}


class ObservationCertificate:
    """When to try which policy: the ledger has what is proved of each, by the shares of the episodes."""

    needs_names: ClassVar[bool] = False

    def __init__(self, task: AnyTask, delta: float) -> None:
        self.task, self.ledger = task, ledger_of(task, delta, NUM_ROWS)
        self.num_episodes = 0
        self.trial_began = self.trial_ends = 0
        self.promised = math.nan  # the reward of the newest one, by the planner
        self.shortfalls = np.zeros((len(set(KINDS)), 2))  # of each kind: by how much the last one fell short, and when

    def is_due(self) -> bool:
        """Always: every episode moves the bounds, and so the weights."""
        return True

    @property
    def episodes_to_look(self) -> int:
        """How many until the next time at which the trial may end; 0 if that is now."""
        if self.trial_ends == self.trial_began:
            return 0
        if self.num_episodes == self.trial_began:
            return self._look
        return (self.trial_began - self.num_episodes) % self._look

    @property
    def _look(self) -> int:
        return max((self.trial_ends - self.trial_began) // LOOKS, 1)

    def wants_candidate(self) -> bool:
        """Whether it is time to propose: the policy on trial is decided, or has had its trial, and no earlier one is
        about to be proved, whose trial then goes on.
        """
        ledger, i = self.ledger, self.ledger.newest
        if self.episodes_to_look or ledger.void:
            return False
        if i == 0 or ledger.certified[i]:
            return True
        if self.num_episodes < self.trial_ends:
            return bool(ledger.forecast(i) == math.inf and ledger.rewards(i)[1] >= ENOUGH)
        nearest = self._nearest() if ledger.num_candidates >= EARLY else 0
        ledger.newest = nearest or i
        return nearest == 0

    def _nearest(self) -> int:
        """The row of the policy that promises the largest gain for the episodes that it takes; 0 if none is near."""
        ledger, longest = self.ledger, PATIENCE * max(self.num_episodes, LONG)
        best = max(ledger.score(i) for i in np.flatnonzero(ledger.certified & ledger.in_use).tolist())
        found, most = 0, 0.0
        for i in np.flatnonzero(~ledger.certified & ledger.in_use).tolist():
            total, own = ledger.rewards(i)
            if own < 1:
                continue
            remaining = ledger.forecast(i)
            gain = (total / own - best) / (remaining + SHORTEST_TRIAL)
            if remaining <= longest and gain > most:
                found, most = i, gain
        return found

    def propose(self, planner: SoftmaxPlanner) -> None:
        """Put on trial what is forecast to be worth most: a new proposal, which may aim at several margins above b, or
        one that is on trial already, by what the planner knows of it now. Early, and with several constraints, a new
        one at the margin of `aim`.

        With one constraint: as long as nothing was earned there is nothing to prove a policy for, and what goes to see
        most is tried. Where rewards are thin the bonus is made smaller with them, or it would hide them for ever, and
        promises of old are cut down to what can be earned by all that was seen.
        """
        aim, ledger = self.aim(), self.ledger
        if self.task.num_constraints > 1 or self.num_episodes < SHORTEST_TRIAL:
            self.consider(planner.propose(aim))
            return
        earned = planner.earned()
        if earned <= TOLERANCE * self.task.horizon:
            self._explore(planner)
            return
        richness = earned / (THIN * self.task.horizon)
        if richness < 1:
            aim = aim._replace(boldness=aim.boldness * max(richness, LEAST_BOLD))
            ledger.cap_promises(earned)
        worth, proposal = self._best_new(planner, aim)
        row, reward = self._best_again(planner, aim, worth)
        if row:
            self._compare_with_promise()
            ledger.try_again(row, reward)
            self._begin_trial()
        else:
            self.consider(proposal)

    def _best_new(self, planner: SoftmaxPlanner, aim: Aim) -> tuple[float, Proposal]:
        """What the best new proposal is taken to earn, and the proposal; they aim at several margins above b."""
        slack = float(known_slacks(self.task)[0])
        aims = [aim._replace(utility=self.task.threshold + share * slack) for share in MARGINS]
        proposals = [planner.propose(one) for one in aims]
        worths = [
            self._worth(proposal.reward, one.utility, self.ledger.next_log_term, 0.0)
            for proposal, one in zip(proposals, aims, strict=True)
        ]
        best = max(worths)
        return best, proposals[worths.index(best)]

    def _best_again(self, planner: SoftmaxPlanner, aim: Aim, least: float) -> tuple[int, float]:
        """The row of the policy on trial that is taken to earn most, if more than `least`, and its reward by the
        planner; row 0 if none does."""
        ledger, best, row, reward = self.ledger, least, 0, math.nan
        may_return = self.task.is_listed and ledger.num_candidates >= EARLY
        for i in np.flatnonzero(~ledger.certified & ledger.in_use & may_return).tolist():
            estimated = planner.estimate(ledger.policy(ledger.names[i]), aim)
            worth = self._worth(*estimated, ledger.trials.log_term[i], ledger.rewards(i)[1])
            if worth > best:
                best, row, reward = worth, i, estimated[0]
        return row, reward

    def _explore(self, planner: SoftmaxPlanner) -> None:
        """Put on trial what goes to see most, whatever its utility. It promises nothing that it could fall short of."""
        self.consider(planner.propose(Aim(self.task.least_total)))
        self.promised = math.nan

    def _worth(self, reward: float, utility: float, log_term: float, own: float) -> float:
        """What a policy of so much reward and utility is taken to earn, with who pays for it, in the episodes ahead.

        After n episodes of its own its bound is about σ√(2 ln(B/δ_j)/n) below its utility. What it then lacks of b is
        paid for by one whose bound L is above b, with a share of lacking/(lacking + L − b).
        """
        task, ledger = self.task, self.ledger
        spread = min(math.sqrt(task.horizon), task.horizon - task.least_total) / 2
        n = own + AHEAD * self.num_episodes * np.arange(1, 9) / 8
        bounds = utility - spread * np.sqrt(2 * log_term / n)
        lacking = float(np.maximum(task.threshold - bounds, 0.0).mean())
        rooms = ledger.lower - task.threshold
        payers = np.flatnonzero((rooms > 0) & ledger.in_use).tolist()
        paid = [lacking / (lacking + rooms[j]) * max(reward - ledger.score(j), 0.0) for j in payers]
        return reward - min(paid, default=0.0)

    def aim(self) -> Aim:
        """b + (ξ/5)(1 + k/60)^{-1/2}: a margin that shrinks as a confidence bound does."""
        margin = amount(FIRST_MARGIN * known_slacks(self.task) / math.sqrt(1 + self.num_episodes / SHORTEST_TRIAL))
        kind = self._kind(self.ledger.num_candidates)
        return Aim(
            self.task.limits + margin,
            OPTIMISM if kind == CURIOUS else 0.0,
            SOBERNESS if kind == SOBER else 1.0,
        )

    def consider(self, proposal: Proposal) -> None:
        """Put a proposal on trial. Made from next to nothing, it may be as good as can be."""
        self._compare_with_promise()
        knows = self.num_episodes >= SHORTEST_TRIAL
        shortfall, when = self.shortfalls[self._kind(self.ledger.num_candidates)].tolist()
        discount = DISCOUNT * shortfall * math.sqrt(when / max(self.num_episodes, 1))
        guess = proposal.reward - discount if knows else float(self.task.horizon)
        self.ledger.begin(proposal.policy, proposal.lam, guess)
        self._begin_trial(proposal.reward if knows else math.nan)

    def add(self, candidate: Policy) -> None:
        """Put a candidate of somebody else on trial, of which nobody promises anything: at first it may be the best."""
        self.ledger.add(candidate, float(self.task.horizon))
        self._begin_trial()

    def _begin_trial(self, promised: float = math.nan) -> None:
        """Propose nothing while the newest policy, of which this reward is promised, has its trial."""
        self.promised = promised
        trial = max(SHORTEST_TRIAL, math.floor(TRIAL_SHARE * self.num_episodes))
        self.trial_began, self.trial_ends = self.num_episodes, self.num_episodes + trial

    def _compare_with_promise(self) -> None:
        """Note by how much the last proposal, if it is on trial, fell short of what the planner promised."""
        i = self.ledger.newest
        reward, own = self.ledger.rewards(i)
        is_last = self.ledger.names[i] == f"{PROPOSAL}{self.ledger.num_candidates}"
        if is_last and math.isfinite(self.promised) and own >= FEW:
            short = max(self.promised - reward / own, 0.0)
            self.shortfalls[self._kind(self.ledger.num_candidates - 1)] = short, self.num_episodes

    def _kind(self, n: int) -> int:
        return KINDS[n % len(KINDS)]

    def bounds(self) -> dict[str, Amount]:
        """What is proved of each policy on trial, by its name."""
        return self.ledger.bounds()

    @property
    def void(self) -> str:
        """Why nothing is proved any more; "" if all is well."""
        return self.ledger.void

    def deployment(self) -> Deployable:
        """The best mixture whose bound reaches the threshold; the incumbent alone, once nothing is proved any more."""
        if self.void:
            return Deployable.alone(self.task.safe_policy, self.void)
        return self.ledger.choose(self.num_episodes)

    def expect(self, policy: Policy, deployment: int, plan_id: int) -> None:
        """Charge the components for a deployment until it is reported."""
        self.ledger.expect(deployment, self.ledger.rows_of(policy), plan_id)

    def abandon(self, deployment: int) -> None:
        """Nothing: what is never reported stays at its worst for ever."""

    def judge(self, policy: Policy, outcome: ReportedEpisode) -> Weighed:
        """The shares of the components in an episode; what they cannot have done is refused."""
        utility = outcome.utility
        if not amounts(utility).min() >= -TOLERANCE * self.task.horizon:
            raise InvalidEpisode(f"the utilities of an episode must sum to 0 or more, got {utility}: shift and rescale")
        shares = shares_of(policy, self.task, outcome.states, outcome.actions)
        rows = self.ledger.rows_of(policy)
        return outcome.deployment, rows, shares, utility, outcome.reward, outcome.named

    def take_in(self, weighed: Weighed) -> None:
        """Credit the policies that may have acted; those no longer on trial are forgotten."""
        self.ledger.credit(*weighed)
        self.num_episodes += 1

    def change(self, task: AnyTask) -> None:
        """Go on with another threshold or slack: what is proved of a policy depends on neither."""
        self.task = task
        self.ledger.change(task.limits, task.limits + amount(known_slacks(task)))

    def withdraw(self, name: str) -> None:
        """End the trial of a policy; if it was the newest, another is asked for."""
        if self.ledger.withdraw(name) and not self.ledger.newest:
            self.trial_began = self.trial_ends = self.num_episodes
            self.promised = math.nan

    def lose(self, num_candidates: int) -> None:
        """End all trials: deployments are lost, and with them up to so many candidates, whose δ_j stay spent."""
        self.ledger.lose(num_candidates)
        self.trial_began = self.trial_ends = self.num_episodes
        self.promised = math.nan

    def state(self, policies: PolicyArrays) -> State:
        """The ledger, and where the trials are."""
        own = {
            "num_episodes": self.num_episodes,
            "trial_began": self.trial_began,
            "trial_ends": self.trial_ends,
            "promised": self.promised,
            "shortfalls": self.shortfalls,
        }
        return under("certificate", {**self.ledger.state(policies), **own})

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        self.ledger.restore(saved, policies)
        self.num_episodes = saved.whole("num_episodes")
        self.trial_began, self.trial_ends = saved.whole("trial_began"), saved.whole("trial_ends")
        self.promised = saved.number("promised", nan=True)
        self.shortfalls = saved.numbers("shortfalls", self.shortfalls.shape, least=0).copy()
