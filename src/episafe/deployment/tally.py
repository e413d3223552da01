"""Deployments and reports of a live system, counted."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Status:
    """Where a journal stands.

    Attributes:
        started: deployments, one for each call of `plan`.
        reported: episodes reported.
        missing: deployments that were not reported, by plan; what is under way is among them.
        oldest_missing: plan and time of the oldest of them, "" if there is none.
        unannounced: episodes reported beyond the deployments of their plan, or of no plan, as from a log.
        faults: what went wrong and was recorded, in order.
        stopped: why only the incumbent is deployed; "" while the agent decides.
        monitors: what the monitors have seen, as plain values; empty without them.
    """

    started: int
    reported: int
    missing: dict[int, int]
    oldest_missing: str
    unannounced: int
    faults: list[str]
    stopped: str
    monitors: dict[str, Any]

    @property
    def num_missing(self) -> int:
        """How many deployments were not reported."""
        return sum(self.missing.values())


@dataclass
class Tally:
    """Deployments and reports, counted."""

    started: int = 0
    reported: int = 0
    unannounced: int = 0
    missing: dict[int, int] = field(default_factory=dict)
    since: dict[int, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    @property
    def oldest(self) -> str:
        """Plan and time of the oldest deployment without a report, "" if there is none."""
        return next((f"plan {plan} of {when}" for plan, when in self.since.items()), "")

    def start(self, plan: int, when: str) -> None:
        """One deployment."""
        self.started += 1
        self.missing[plan] = self.missing.get(plan, 0) + 1
        self.since.setdefault(plan, when)

    def report(self, plan: int | None, episode_id: str | None) -> None:
        """One report."""
        self.reported += 1
        if episode_id is not None:
            self.ids.add(episode_id)
        if plan is None or plan not in self.missing:
            self.unannounced += 1
            return
        self.missing[plan] -= 1
        if not self.missing[plan]:
            del self.missing[plan], self.since[plan]
