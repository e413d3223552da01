"""The journal of a live bandit: as of any agent, with actions, rewards and utilities in place of episodes."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from episafe.agents.bandits.base import BanditPlan
from episafe.deployment.session import HELD, Opened
from episafe.monitors import Alarm
from episafe.types import Array


class Observed(NamedTuple):
    """What monitors are shown: one observation, or a batch."""

    action: Any
    reward: Any
    utility: Any


class OpenedBandit(Opened):
    """A bandit agent with its journal; made by `es.open`."""

    kind = "live bandit"

    def plan(self, round: int | None = None) -> BanditPlan:  # type: ignore[override]
        """The plan for one more round: each call is one deployment. It is on the disk when this returns.

        Args:
            round: k, where the arms change with the round; by default the number of observations.
        """
        found: BanditPlan = self._deploy(() if round is None else (int(round),))
        return found

    def learn(  # type: ignore[override]
        self,
        action: Any,
        reward: Any,
        utility: Any,
        plan_id: int | None = None,
        episode_id: str | int | None = None,
    ) -> None:
        """Take in one observation, or a batch of one plan; when this returns, it is on the disk.

        Args:
            action, reward, utility: as `agent.learn` takes them.
            plan_id: the plan that was deployed, however long ago; None for observations from elsewhere.
            episode_id: a name of yours; the same one twice is refused.
        """
        self._report([_plain(action), _plain(reward), _plain(utility)], plan_id, episode_id)

    def _feed(self, values: list[Any], plan_id: int | None) -> Observed:
        seen = Observed(*values)
        self._refuse_foreign(plan_id)
        self.agent.learn(*seen)
        return seen

    def _alarms(self, plan: Any, seen: Observed) -> list[Alarm]:
        each = [self._monitors.watch(plan, utility) for utility in np.atleast_1d(seen.utility)]  # type: ignore[union-attr]
        return [alarm for alarms in each for alarm in alarms]

    def _safe_plan(self, reason: str, arguments: tuple[Any, ...]) -> BanditPlan:
        round = arguments[0] if arguments else self.agent.num_observations
        made = self.agent.safe_plan(round, reason)
        return BanditPlan(made.atoms, made.probabilities, "safe", level=made.level, reason=reason, id=HELD)

    def _recipe(self, folder: Path, agent: Any) -> dict[str, str | int | float]:
        return {}  # an audit is handed the agent


def _plain(value: Any) -> Array | float:
    """Numbers as they are kept; what is none is for the agent to refuse."""
    found: Array = np.asarray(value)
    return found
