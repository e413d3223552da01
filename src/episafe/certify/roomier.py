"""`Observation` where the incumbent has little slack: first a roomier policy that pays for trials, then a good one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.certify.observation import ENOUGH, Observation, ObservationCertificate
from episafe.learning.planner import Aim, Proposal, SoftmaxPlanner
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, amount

# These touch the regret and never the guarantee; set on problems of seeds 1000 to 1023.
SMALL = 0.05  # the room below which a roomier policy is looked for
MOST_SOUGHT = 3  # of them that are tried, at most


@dataclass(frozen=True)
class Roomier(Observation):
    """`Observation` for an incumbent of small slack that is not the roomiest policy: what is proved is the same.

    The first coin gives a candidate at most ξ/(b + ξ) of the episodes, and trials last for ever where that is small. So
    where it is below 0.05 the first proposals aim at the largest utility and at no reward, as MA-OPS does (Zuo and
    Stradi 2026): one that is proved pays for the trials after it with (L − b)/L, whatever the incumbent's slack.

    Where it is 0.05 or more this is `Observation`, bit for bit. Where no policy has much more utility than the
    incumbent it only loses time.
    """

    name: ClassVar[str] = "roomier"

    def begin(self, task: AnyTask) -> "RoomierCertificate":
        """A certificate for this task, with nothing on trial yet."""
        return RoomierCertificate(task, self.delta)


class RoomierCertificate(ObservationCertificate):
    """What to try first: policies of large utility, until one of them is proved."""

    def __init__(self, task: AnyTask, delta: float) -> None:
        super().__init__(task, delta)
        self.num_sought, self.seeking = 0, False  # how many roomier ones were tried; whether the newest is one

    @property
    def rooms(self) -> Array:
        """min_c (L_c − b_c)/(L_c − l_c), l the least total, of each policy, (n,): the first coin that it can pay for.

        −∞ of one that is not proved to be safe.
        """
        several, proved = self.task.constraints, self.ledger.certified & self.ledger.in_use
        b, least = np.array([(one.threshold, one.least_total) for one in several]).T
        lower, found = np.reshape(self.ledger.lower, (-1, len(several)))[proved], np.full(len(proved), -np.inf)
        found[proved] = ((lower - b) / (lower - least)).min(axis=1)
        return found

    def wants_candidate(self) -> bool:
        """A roomier one has its trial until it is decided: all later ones wait for it."""
        ledger, i = self.ledger, self.ledger.newest
        if not self.seeking or i == 0 or ledger.certified[i]:
            return super().wants_candidate()
        is_lost = ledger.forecast(i) == math.inf and ledger.rewards(i)[1] >= ENOUGH
        return bool(is_lost and not self.episodes_to_look and not ledger.void)

    def propose(self, planner: SoftmaxPlanner) -> None:
        """A roomier policy while one is looked for; then as `Observation`."""
        if self._seeks():
            self.consider(planner.propose(self.aim()))
        else:
            self.seeking = False
            super().propose(planner)

    def aim(self) -> Aim:
        """All the utility that there is, while a roomier policy is looked for."""
        every = np.full(self.task.num_constraints, float(self.task.horizon))
        return Aim(amount(every)) if self._seeks() else super().aim()

    def consider(self, proposal: Proposal) -> None:
        """Put a proposal on trial; a roomier one as if it were as good as can be, since nobody asks for its reward."""
        self.seeking, ledger = self._seeks(), self.ledger
        if self.seeking:
            self.num_sought += 1
            proposal = proposal._replace(reward=float(self.task.horizon))
        promoted, rooms = ledger.names[ledger.pinned], self.rooms
        if promoted == INCUMBENT and rooms[0] < SMALL:
            ledger.pin(ledger.names[int(np.argmax(rooms))])  # whoever leaves to make room, the one that pays stays
        super().consider(proposal)
        ledger.pin(promoted)
        if self.seeking:
            self.promised = math.nan

    def add(self, candidate: Policy) -> None:
        """Put a candidate of somebody else on trial."""
        super().add(candidate)
        self.seeking = False

    def _seeks(self) -> bool:
        return self.num_sought < MOST_SOUGHT and bool(self.rooms.max() < SMALL)

    def state(self, policies: PolicyArrays) -> State:
        """That of `Observation`, and what was sought."""
        own = {"num_sought": self.num_sought, "seeking": self.seeking}
        return super().state(policies) | under("certificate", own)

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        super().restore(saved, policies)
        self.num_sought, self.seeking = saved.whole("num_sought"), bool(saved.flags("seeking", ()))
