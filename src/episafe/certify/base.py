"""What a certifier is, what passes between it and the agent, and the paper's own certifier."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import Contradiction, InvalidEpisode
from episafe.learning.planner import Aim, Proposal
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.state_reader import Saved, State
from episafe.types import Amount, IntArray, amount, amounts

INCUMBENT, PROPOSAL = "incumbent", "proposal-"  # what mixtures and bounds call it, and those that a planner made

AT_LEAST = "every episode has a total utility of at least {:g}, and the first that has less halts and voids this"


class Deployable(NamedTuple):
    """What may be deployed now: a policy or a mixture, its source, λ, the bound and, for the incumbent, why."""

    policy: Policy
    source: Literal["safe", "search"]
    lam: float
    utility_bound: Amount
    reason: str = ""

    @classmethod
    def alone(cls, incumbent: Policy, reason: str) -> "Deployable":
        """The incumbent, and why it acts alone."""
        return cls(incumbent, "safe", math.nan, math.nan, reason)


class ReportedEpisode(NamedTuple):
    """What came of one deployed episode, as it was reported.

    Attributes:
        states: (H+1,) of them; None for an episode that has its totals alone.
        actions: (H,); None with them.
        utility: the total; (m,) where there are several constraints.
        reward: the total.
        component: which policy of a mixture acted, by the coin.
        deployment: the number of its deployment in a session, which counts them; None where nobody counts.
        trace: the chance that was seen; None where there is none.
        named: whether it is sure which deployment it was, and not only of which plan.
        plan: the number of its plan.
        report: the episode as it was reported.
    """

    states: Any
    actions: IntArray | None
    utility: Amount
    reward: float
    component: int = 0
    deployment: int | None = None
    trace: Any = None
    named: bool = True
    plan: int = -1
    report: Any = None


class Certificate(Protocol):
    """A certifier at work on one task. It sees what was deployed and what came of it, never the transition kernel.

    What else it may have, and what that brings; agents and sessions ask whether it is there:

    - `ledger`: what is on trial can be promoted, once it is proved;
    - `add(candidate)`, `withdraw(name)`, `change(task)`: candidates of others, the end of a trial, another limit;
    - `void`, `refuted`: why all that it proved, or what replays proved, holds no more, "" while it does; an alarm;
    - `propose(planner)` in place of `aim` and `consider`; `issued(plan_id)`, told of each new plan;
    - `learn_log(trace)`: it learns from traces of episodes that nobody deployed here;
    - `bounds()`: what is proved of each policy on trial, by its name.

    Ours all count deployments, so that reports may be late or lost: `expect(policy, deployment, plan_id)` says that a
    session has deployed a policy, which may be of the worst until its outcome comes with that number;
    `abandon(deployment)` that it never will; `judge(policy, outcome)` is what an episode says, checked, with nothing
    changed yet; `needs_names`, whether every report must say which deployment it is of. One that counts none has
    `weigh(policy, states, actions, utility, reward)` in place of `judge`, and assumes that every episode is reported,
    once, whatever came of it.
    """

    def is_due(self) -> bool:
        """Whether what is deployed may change before the next episode."""

    def wants_candidate(self) -> bool:
        """Whether it is time to propose a policy."""

    def aim(self) -> Aim:
        """What a proposal should reach by the planner's estimate."""

    def consider(self, proposal: Proposal) -> None:
        """Put a proposal on trial; all that is proved about it is proved from later episodes."""

    def deployment(self) -> Deployable:
        """What to deploy in the next episode."""

    def take_in(self, weighed: Any) -> None:
        """Add what `judge` or `weigh` returned."""

    def lose(self, num_candidates: int) -> None:
        """End what is on trial: deployments are lost, and with them up to so many candidates, whose δ stays spent."""

    def state(self, policies: PolicyArrays) -> State:
        """All of it as arrays, their names below "certificate"; policies are numbered by `policies`."""

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said; half of it where an entry is refused."""


def require_free_name(name: Any, policy: Any, known: Mapping[str, Policy]) -> None:
    """A candidate has a name of its own, and is none of the `known` policies."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise ValueError(f"a candidate needs a name, got {name!r}: give a word by which records shall call it")
    if name in known or name.startswith(PROPOSAL):
        raise ValueError(f"the name {name!r} is taken: give the candidate another; one that changed is a new candidate")
    twin = next((other for other, one in known.items() if one.policy is policy), None)
    if twin is not None:
        raise ValueError(f"the candidate {name!r} is the same object as {twin!r}: each policy is on trial once")


def require_told(name: str, task: Any, outcome: ReportedEpisode) -> tuple[Any, IntArray]:
    """States and actions of an episode. Refused is one without steps, from another start, or with another utility than
    the task's, which `name` needs to be known: what is deployed by a false one may be of any utility."""
    states, actions, utility = outcome.states, outcome.actions, outcome.utility
    if actions is None:
        raise InvalidEpisode(
            f"the episode has its totals alone, and {name} learns from transitions: report states and actions, or use "
            "Observation"
        )
    if states[0] != task.initial_state:
        raise InvalidEpisode(f"states[0] is {states[0]}, but {name} is for the fixed start {task.initial_state}")
    told = amount(np.add.reduce([amounts(task.utility_at(h, states[h])[a]) for h, a in enumerate(actions.tolist())]))
    if not np.all(np.abs(utility - told) <= TOLERANCE * task.horizon):
        raise Contradiction(
            f"the utilities sum to {utility}, and to {told} by the task: {name} needs a known utility; use Observation"
        )
    return states, actions


class Certifier(Protocol):
    """Settings of a certifier: how a proposal becomes a policy that may be deployed."""

    name: ClassVar[str]

    def begin(self, task: AnyTask) -> Certificate | None:
        """A certificate for this task; None where the planner's own bound is the certificate."""

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say, as plain values."""


@dataclass(frozen=True)
class Model:
    """The paper's: a policy may be deployed if the model's pessimistic value of it is at least b. As good as C_u."""

    name: ClassVar[str] = "model"
    needs_linear_kernel: ClassVar[bool] = True

    def begin(self, task: AnyTask) -> None:
        """Nothing to keep: the planner checks its own plans."""

    def settings(self) -> dict[str, str | int | float]:
        """Nothing beyond the constants."""
        return {}
