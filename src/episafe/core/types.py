"""Arrays, states, episodes and plans. Shapes: H steps, S states, A actions, d features, m limits, K episodes."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from episafe.core.policy import Mixture, Policy
    from episafe.core.task import Task

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

State = int | float | str | tuple[Any, ...] | NDArray[Any]  # what `Task.encode` returns, and nothing else
Plain = None | bool | int | float | str | Sequence["Plain"] | Mapping[str, "Plain"]  # what JSON can hold
Settings = dict[str, Plain]  # what a record or log says of an agent, a certifier or a problem
Document = dict[str, Any]  # a JSON object that is read: `load_policy` knows what its fields must be
PerLimit = float | None | Sequence[Any] | Mapping[str, Any] | NDArray[Any]  # one value; or m, in order or by name
START: tuple[str] = ("start",)  # state of the dummy first step of a problem with a random start
ENDED: tuple[str] = ("ended",)  # absorbing state of an episode that ended before the horizon

Source = Literal["safe", "zero", "search", "fixed"]  # the incumbent; λ = 0; found by search; a given policy
SOURCES: tuple[Source, ...] = get_args(Source)
SAFE, ZERO, SEARCH, FIXED = range(4)  # positions in SOURCES, for arrays
Level = Literal["theorem", "window", "heuristic"]

# Functions of users: their arguments are states and chance values of types that only the user knows.
StateFunction = Callable[[int, Any], ArrayLike]  # (h, state) -> r_h, u_h or π_h(·|state), shape (A,)
Encoder = Callable[[Any], State]  # observation -> state
View = Callable[[Any], Any]  # state -> observation
Move = Callable[[int, Any, int, Any], tuple[Any, float, Any]]  # (h, state, action, w) -> next state, reward, utility
Support = Callable[[int, Any], Any]  # (h, state) -> the values that w can take
INCUMBENT = "incumbent"  # its name in mixtures, bounds and logs


def is_outside(state: object) -> TypeGuard[tuple[str]]:
    """Return whether a state is START or ENDED, where no policy decides anything."""
    return type(state) is tuple and len(state) == 1 and type(state[0]) is str and state in (START, ENDED)


def index_of(state: State) -> int:
    """Return the number of a listed state."""
    assert isinstance(state, int | np.integer), f"the states are listed, but {state!r} is not one of them"
    return int(state)


def key_of(value: object) -> Hashable:
    """Return the key of a state or a value of chance: lists and arrays become tuples, NumPy scalars become numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(key_of(part) for part in value)
    if isinstance(value, Mapping):
        return tuple((name, key_of(part)) for name, part in sorted(value.items()))
    return value  # any hashable value


class Unit(NamedTuple):
    """How totals of a signal are shown: `offset + factor·total`, in the unit `text`. Costs have a negative factor.

    The limit "total utility at least b" is then shown as an upper limit on the cost.
    """

    text: str = ""
    offset: float = 0.0
    factor: float = 1.0

    def raw(self, total: Any) -> Any:
        """Return a total, or an array of totals, in the unit that is shown to people."""
        return self.offset + self.factor * total

    def say(self, total: float, digits: int = 4) -> str:
        """Return a total with its unit."""
        return f"{self.raw(total):.{digits}g} {self.text}".strip()

    @property
    def bound(self) -> str:
        """Return "at least" or "at most": on which side of a limit totals must be."""
        return "at least" if self.factor > 0 else "at most"

    @property
    def beyond(self) -> str:
        """Return "below" or "above": where totals are that break a limit."""
        return "below" if self.factor > 0 else "above"


@dataclass(frozen=True)
class Episode:
    """The observations of one episode.

    Attributes:
        states: s_1..s_{H+1}, length H+1; None if only totals are known.
        actions: a_1..a_H, length H; None if only totals are known.
        rewards: observed rewards (H,); None if the task knows them.
        utilities: observed utilities (H,) or (H, m); None if the task knows them.
        component: which component of a mixture acted.
        trace: (start, (w_1, …, w_H)), the values of exogenous chance; None for a value that was not observed.
        total_utility, total_reward: totals of the whole episode, if its steps were not observed; utility (m,).
        checked_by: the task whose `Task.read` has checked the episode; a copy has none.
    """

    states: Any = None
    actions: Any = None
    rewards: Any = None
    utilities: Any = None
    component: int | None = None
    trace: Any = None
    total_utility: Any = None
    total_reward: float | None = None
    checked_by: Any = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of_totals(cls, utility: object, reward: float = 0.0, component: int | None = None) -> "Episode":
        """Return an episode with known totals and unknown steps. It counts as evidence but does not train planners."""
        return cls(component=component, total_utility=utility, total_reward=reward)


@dataclass(frozen=True)
class Plan:
    """The policy for the next episode, and why it may be deployed.

    Attributes:
        policy: a `Policy`, or a `Mixture` of which one component acts for the whole episode.
        source: "safe" (the incumbent), "zero" (λ = 0), "search" or "fixed".
        bounds: lower bounds on the expected utilities (m,); NaN for the incumbent, whose utility is assumed.
        level: how strong the bounds are: "theorem", "window" or "heuristic".
        reason: why the incumbent is deployed; "" if another policy is.
        lam: the multiplier; NaN if there is none, the sum if there are several limits.
        id: counts the plans of one agent from 0.
    """

    policy: "Policy | Mixture"
    source: Source
    bounds: Array = field(default_factory=lambda: np.full(1, math.nan))
    level: Level = "heuristic"
    reason: str = ""
    lam: float = math.nan
    id: int = 0

    @classmethod
    def fallback(cls, task: "Task", level: Level, reason: str = "") -> "Plan":
        """Return the plan that deploys the incumbent."""
        return cls(task.incumbent, "safe", np.full(task.num_constraints, math.nan), level, reason)

    @cached_property
    def parts(self) -> "Mixture":
        """Return the policies that may act, with weights and names: a single policy as a mixture of one."""
        from episafe.core.policy import Mixture  # which imports this module

        if isinstance(self.policy, Mixture):
            return self.policy
        return Mixture([self.policy], np.ones(1), [INCUMBENT if self.source == "safe" else self.policy.name])
