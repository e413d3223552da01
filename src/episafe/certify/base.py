"""What a certifier is, what passes between it and the agent, and the paper's own certifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from episafe.learning.planner import Aim, Proposal
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.state_reader import Saved, State
from episafe.types import IntArray


class Deployment(NamedTuple):
    """What may be deployed now: a policy or a mixture, its source, λ, the bound and, for the incumbent, why."""

    policy: Policy
    source: Literal["safe", "search"]
    lam: float
    utility_bound: float
    reason: str = ""


class Certificate(Protocol):
    """A certifier at work on one task. It sees what was deployed and what came of it, never the transition kernel."""

    def is_due(self) -> bool:
        """Whether what is deployed may change before the next episode."""

    def wants_candidate(self) -> bool:
        """Whether it is time to propose a policy."""

    def aim(self) -> Aim:
        """What a proposal should reach by the planner's estimate."""

    def consider(self, proposal: Proposal) -> None:
        """Put a proposal on trial; all that is proved about it is proved from later episodes."""

    def deployment(self) -> Deployment:
        """What to deploy in the next episode."""

    def weigh(self, policy: Policy, states: Any, actions: IntArray, utility: float, reward: float) -> Any:
        """What an episode of a deployed policy says, checked; nothing is changed yet."""

    def take_in(self, weighed: Any) -> None:
        """Add what `weigh` returned."""

    def state(self, policies: PolicyArrays) -> State:
        """All of it as arrays, their names below "certificate"; policies are numbered by `policies`."""

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said; half of it where an entry is refused."""


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

    def begin(self, task: AnyTask) -> None:
        """Nothing to keep: the planner checks its own plans."""

    def settings(self) -> dict[str, str | int | float]:
        """Nothing beyond the constants."""
        return {}
