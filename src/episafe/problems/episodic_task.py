"""What tasks of episodes share: reports and whether they fit, plans, and two states that no environment has."""

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from episafe.checks import TOLERANCE, as_listed, as_whole_numbers
from episafe.errors import InvalidEpisode
from episafe.gym.step_reader import Reading
from episafe.problems.policy import Policy
from episafe.problems.short_repr import short_repr, task_facts
from episafe.storage.json_values import register
from episafe.types import Array, Episode, IntArray, Plan

SIGNALS = {"reward": "rewards", "utility": "utilities"}


class Outside(Enum):
    """Where an episode is while its environment is not running. All actions are alike there, and nobody moves it.

    START is a dummy first step whose transition is the distribution of the start. ENDED is
    absorbing: an episode that ends early stays there up to the horizon.
    """

    START = "start"
    ENDED = "ended"


START, ENDED = Outside.START, Outside.ENDED
register("outside", Outside, lambda state: state.value, Outside)


class EpisodicTask:
    """A task whose reports are episodes. Tasks say how their states are checked and which numbers they tell."""

    kind = "mdp"
    report_length = 1  # an episode
    changes = False  # a plan is for any episode
    outside: Mapping[Outside, tuple[float, float]] = MappingProxyType({})
    reading: Reading | None = None
    if TYPE_CHECKING:
        horizon: int
        num_actions: int
        safe_policy: Policy
        time_homogeneous: bool
        dim = property(lambda self: 0)
        one_hot = property(lambda self: False)
        threshold = property(lambda self: 0.0)
        slack = property(lambda self: None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Which of "reward" and "utility" the task does not tell, so that they have to be learned."""
        return ()

    @property
    def random_start(self) -> bool:
        """Whether the first step is a dummy one, whose transition is the start."""
        return START in self.outside

    @property
    def may_end(self) -> bool:
        """Whether an episode may end early, in an absorbing state."""
        return ENDED in self.outside

    def __repr__(self) -> str:
        return short_repr(self, task_facts(self))

    def incumbent_policy(self, round: int) -> Policy:
        """The incumbent."""
        return self.safe_policy

    def as_plan(self, policy: Policy, *facts: Any) -> Plan:
        """A plan of a policy, by the facts that `Plan` has after it."""
        return Plan(policy, *facts)

    def read_report(self, episode: Episode) -> tuple[tuple[Any, IntArray], Array | None]:
        """States (H+1,) and actions (H,), and the signals (H, 2) that the task does not tell; None where it tells both.

        What does not fit is an InvalidEpisode.
        """
        for name in SIGNALS.values():
            if getattr(episode, name) is not None:
                values = as_listed(name, getattr(episode, name), self.horizon)
                if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
                    raise InvalidEpisode(f"{name} must be finite numbers, got {getattr(episode, name)!r}")
        actions = as_whole_numbers("actions", episode.actions, self.horizon, self.num_actions)
        return (self._read_states(episode.states), actions), self._read_signals(episode)

    def check_report(self, episode: Episode) -> None:
        """Refuse an episode that does not fit, in every one of its states."""
        (states, _), _ = self.read_report(episode)
        self._check_states(states)

    def draw(self, plan: Plan, rng: np.random.Generator) -> tuple[int, Any]:
        """Toss the coin of a plan: which component acts, and what it is."""
        drawn: tuple[int, Any] = plan.policy.draw(rng)
        return drawn

    def report_values(self, episode: Episode) -> list[Any]:
        """An episode as a journal keeps it; `report_from` gives it back."""
        return [episode.states, episode.actions, episode.rewards, episode.utilities, episode.component]

    def report_from(self, values: list[Any]) -> tuple[Episode]:
        """What an agent learns from, of what `report_values` gave."""
        return (Episode(*values),)

    def with_component(self, report: tuple[Episode], component: int | None) -> tuple[Episode]:
        """A report that says which component acted, as the coin fell."""
        (episode,) = report
        if component is None or episode.component == component:
            return report
        if episode.component is not None:
            raise InvalidEpisode(f"component {component} was drawn, and the episode says {episode.component}")
        return (replace(episode, component=component),)

    def identity(self) -> dict[str, Any]:
        """What the task is known by, beside its numbers."""
        return {}

    def numbers(self, own: Policy | None = None) -> list[Any]:
        """Arrays by which two tasks, and a policy of one's own, are told apart."""
        slack = math.nan if self.slack is None else self.slack
        sizes = [self.horizon, self.num_actions, self.dim]
        kept = [sizes, [self.threshold, slack], [self.one_hot, self.time_homogeneous]]
        policies = [self.safe_policy] if own is None else [self.safe_policy, own]
        return [*kept, *self._told_numbers(policies)]

    def as_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The task as named arrays; None where it is given by functions."""
        return None

    def _read_states(self, states: Any) -> Any:
        raise NotImplementedError

    def _check_states(self, states: Any) -> None:
        """Refuse states that the task cannot describe."""

    def _told_numbers(self, policies: list[Policy]) -> list[Any]:
        raise NotImplementedError

    def _read_signals(self, episode: Episode) -> Array | None:
        """Rewards and utilities (H, 2), 0 for what the task tells; None where it tells both."""
        if not self.unknown:
            return None
        seen = np.zeros((self.horizon, 2))
        for g, (name, plural) in enumerate(SIGNALS.items()):
            if name in self.unknown:
                if getattr(episode, plural) is None:
                    raise InvalidEpisode(f"{plural} are missing: the task does not tell the {name}, so episodes must")
                seen[:, g] = getattr(episode, plural)
        if seen.min() < -TOLERANCE or seen.max() > 1 + TOLERANCE:
            raise InvalidEpisode(f"rewards and utilities must lie in [0, 1], got {seen.min():.6g} to {seen.max():.6g}")
        return seen
