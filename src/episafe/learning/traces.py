"""The traces that were seen of a problem, in the order in which they came, and what any policy is worth on each."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from episafe.problems.policy import Policy
from episafe.storage.state_reader import Saved, State
from episafe.types import Array


class Traces(ABC):
    """What is alike whether states are listed or not.

    Args:
        task: what the learner is told; it must tell `move`.

    Attributes:
        fault: why some move could not be made, of the first that could not; "" if all could. It counts as the worst.
    """

    def __init__(self, task: Any) -> None:
        self.task, self.fault = task, ""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take_in(self, trace: Any) -> None:
        """One more trace."""

    @abstractmethod
    def beginning(self, number: int) -> Self:
        """The first so many traces alone."""

    @abstractmethod
    def totals(self, policy: Policy, first: int = 0) -> Array:
        """Total reward and utilities (n − first, 1 + m) of a policy on each trace from number `first` on.

        What cannot be replayed adds nothing from there on: all are lower bounds.
        """

    def totals_of_all(self, policies: Sequence[Policy], first: int = 0) -> Array:
        """The same for several policies, none a mixture, (P, n − first, 1 + m)."""
        return np.array([self.totals(policy, first) for policy in policies])

    @abstractmethod
    def state(self) -> State:
        """The traces as named arrays."""

    @classmethod
    @abstractmethod
    def restored(cls, saved: Saved, task: Any) -> Self:
        """What `state` gave."""

    def fault_of(self, episode: Any) -> str:
        """Where the episode of the last trace is not what `move` makes of it, in words; "" if nowhere."""
        return "" if episode.states is None else str(self.task.replay_fault(episode))

    def moved(self, h: int, state: Any, action: int, w: Any) -> Any:
        """Next state, reward and utility, given what chance brings; None where nobody can say: it is a `fault`."""
        try:
            return self.task.moved(h, state, action, w)
        except Exception as error:
            self.fault = self.fault or f"at step {h}, state {state!r}, action {action}, chance {w!r}: {error}"
            return None
