"""Problems given by rules: how the system moves given chance, and the values of chance. Small ones are listed."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from episafe.core.checks import TOLERANCE, require
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.policy import TablePolicy
from episafe.core.task import OneHot, TableFeatures, Task, make_constraints
from episafe.core.types import Array, PerLimit, key_of
from episafe.problems.linear import LinearCMDP
from episafe.problems.moves import NOWHERE, ListedMove, is_exogenous

RuleState = tuple[int, ...]
Chance = tuple[Iterable[Any], ArrayLike]  # the values of one random input, and their probabilities
Draw = tuple[Any, ...]  # one value of each random input of a step
Pairs = dict[Hashable, tuple[Draw, float]]  # values of chance by key, with their probabilities
MAX_LISTED = 1_000  # states that `listed` makes arrays of
MAX_BYTES = 2 << 30  # of P


class Rules(ABC):
    """A system that depends on actions and chance. Subclass it to list or play a problem of your own.

    Attributes:
        horizon: H.
        num_actions: A.
        start: the first state.
        time_homogeneous: whether chance and moves are the same at every step.
        names: the names of the limits, if `move` returns several utilities.
        action_names, units: shown to people.
    """

    horizon: int
    num_actions: int
    start: RuleState
    time_homogeneous: bool = False
    names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    units: Mapping[str, str] = {}  # replaced by subclasses, never changed

    def describe(self, start: RuleState, action_names: tuple[str, ...], units: Mapping[str, str]) -> None:
        """Set derived attributes of a frozen dataclass."""
        told = {"start": start, "num_actions": len(action_names), "action_names": action_names, "units": units}
        self.__dict__.update(told)

    @abstractmethod
    def move(self, h: int, state: RuleState, action: int, w: Draw) -> tuple[RuleState, float, float | Sequence[float]]:
        """Return the next state, the reward and the utility in [0, 1] given chance. Nothing else may be random.

        The utility is a number, or a tuple with one number per limit.
        """

    @abstractmethod
    def incumbent(self, h: int, state: RuleState) -> ArrayLike:
        """Return the action probabilities (A,) of the policy in use today."""

    def chances(self, h: int, state: RuleState) -> list[Chance] | None:
        """Return the law of chance in this step: independent random inputs, each with values and probabilities.

        Only simulations need it. If the law is unknown, return None and override `support`.
        """
        return None

    def support(self, h: int, state: RuleState) -> Iterable[Draw]:
        """Return the values that chance can take in this step, as tuples; by default those of `chances`."""
        law = self.chances(h, state)
        if law is None:
            raise InvalidProblem(
                f"{type(self).__name__} has neither chances nor support: give support(h, state), the values of chance"
            )
        return product(*(values for values, _ in law))

    def after(self, state: RuleState, action: int) -> Hashable:
        """Return everything that the next state depends on. Pairs with the same value share their data."""
        return (state, action)


def listed(
    rules: Rules,
    threshold: PerLimit,
    *,
    slack: PerLimit = None,
    least_total: PerLimit = 0.0,
    origin: Mapping[str, str | int | float] | None = None,
) -> LinearCMDP:
    """Return the rules as arrays: every reachable state, with exact P, mean reward and mean utility.

    If chance does not depend on the actions, the problem is exogenous and its task has `move`. Features are indicators
    of `rules.after(state, action)`. States are numbered as they are found: `task.state_names[s]` is the state s of the
    rules. For several utilities give lists of m thresholds, or mappings by `rules.names`; likewise slacks.

    Args:
        rules: the system; it must have a law of chance (`chances`). Without one use `listed_task`.
        threshold: b, the expected total utility of an episode to keep.
        slack: by how much the incumbent exceeds b on the real system. None: its exact slack under the law of
            `rules.chances`, which is right only in a simulation of that law.
        least_total: a total utility that every episode is certain to reach.
        origin: where the problem comes from, as plain values; kept with every record.
    """
    index, move, law = _explored(rules)
    live = "use episafe.problems.rules.listed_task(rules, threshold, slack=…) for a live system"
    fault = f"the rules have no law of chance, so there is no P: give chances(h, state) to simulate them, or {live}"
    require(not np.isnan(law).any(), fault)
    (n, S, A, _), H = move.next_states.shape, rules.horizon
    size = f"P of {n} steps, {S} states and {A} actions takes {8 * n * S * A * S / 2**30:.3g} GiB"
    remedy = "state fewer steps, states or actions, or use es.SampledCMDP or es.from_gymnasium"
    require(8 * n * S * A * S <= MAX_BYTES, f"{size}: {remedy}")
    law /= law.sum(axis=2, keepdims=True)  # products of probabilities sum to 1 up to rounding
    P, reward, utilities = move.means(law)
    P, reward, *utility = (np.broadcast_to(one, (H, *one.shape[1:])) for one in (P, reward, *utilities))
    exogenous = is_exogenous(move, law, 0, H)
    return LinearCMDP(
        *(P, reward, utility if len(utility) > 1 else utility[0], _features(rules, index)),
        threshold=threshold,
        safe_policy=_incumbent(rules, index),
        slack=slack,
        move=move if exogenous else None,
        law=law if exogenous else None,
        least_total=least_total,
        names=rules.names,
        origin=origin,
        **_facts(rules, index),
    )


def listed_task(rules: Rules, threshold: PerLimit, *, slack: PerLimit = None, least_total: PerLimit = 0.0) -> Task:
    """Return the task of rules on a live system with an unknown law of chance: states are listed, P is not needed.

    Rewards and utilities follow from `move` and the values of chance. The arguments are those of `listed`.
    """
    index, move, _ = _explored(rules)
    phi = _features(rules, index)
    return Task(
        *(rules.horizon, rules.num_actions),
        constraints=make_constraints(None, threshold, slack, rules.names, least_total),
        incumbent=TablePolicy(_incumbent(rules, index), "incumbent"),
        num_states=len(index),
        features=OneHot() if phi is None else TableFeatures(phi),
        move=move,
        support=move.support,
        **_facts(rules, index),
    )


def _explored(rules: Rules) -> tuple[dict[RuleState, int], ListedMove, Array]:
    """Return the numbers of all reachable states, all moves from them, and the law (n, S, W), NaN where unknown."""
    index, values, waiting = {rules.start: 0}, dict[Hashable, Draw](), [rules.start]
    found: list[tuple[int, int, Pairs, NDArray[Any], Array, Array]] = []
    n, A = 1 if rules.time_homogeneous else rules.horizon, rules.num_actions
    with _bar() as advance:
        while waiting:
            state = waiting.pop()
            for h in range(n):
                pairs = _chances_at(rules, h, state)
                values |= {key: w for key, (w, _) in pairs.items() if key not in values}
                moves = [rules.move(h, state, a, w) for w, _ in pairs.values() for a in range(A)]
                comes, rewards, utilities = zip(*moves, strict=True)
                for following in dict.fromkeys(comes):
                    if following not in index:
                        index[following] = len(index)
                        waiting.append(following)
                outcomes = np.array([index[one] for one in comes]), np.array(rewards), np.array(utilities)
                comes_to, r, u = (one.reshape(len(pairs), A, -1).swapaxes(0, 1) for one in outcomes)  # (A, W, 1 or m)
                found.append((h, index[state], pairs, comes_to[..., 0], r[..., 0], u))
            advance(len(index) - len(waiting), len(index))
            fault = f"more than {MAX_LISTED} states can be reached, too many for arrays"
            require(len(index) <= MAX_LISTED, f"{fault}: play the rules with es.SampledCMDP(…, move=…, chance=…)")
    shape, number = (n, len(index), A, len(values)), {key: i for i, key in enumerate(values)}
    next_states, reward, law = np.full(shape, NOWHERE), np.zeros(shape), np.zeros((n, len(index), len(values)))
    utility = np.zeros((*shape, found[0][-1].shape[2]))
    for h, s, pairs, comes_to, r, u in found:
        at = [number[key] for key in pairs]
        law[h, s, at] = [p for _, p in pairs.values()]
        next_states[h, s][:, at], reward[h, s][:, at], utility[h, s][:, at] = comes_to, r, u
    states = tuple(index)

    def unlisted(h: int, state: int, action: int, w: Draw) -> tuple[int, float, float | Sequence[float]]:
        following, reward, utility = rules.move(h, states[state], action, tuple(w))
        if following not in index:
            raise InvalidEpisode(
                f"at step {h}, state {states[state]}, action {action} chance {w!r} leads to {following}, which "
                "is not listed, because no value in chances or support leads there: extend support"
            )
        return index[following], reward, utility

    return index, ListedMove(tuple(values.values()), next_states, reward, utility, unlisted), law


def _chances_at(rules: Rules, h: int, state: RuleState) -> Pairs:
    """Return the values that chance can take in a step, by key, with their probabilities; NaN without a law."""
    law, pairs = rules.chances(h, state), Pairs()
    for row in () if law is None else product(*(_checked(h, state, *one) for one in law)):
        w, p = tuple(value for value, _ in row), math.prod(p for _, p in row)
        if p > 0:
            key = key_of(w)
            pairs[key] = w, p + pairs.get(key, (w, 0.0))[1]
    if law is None or type(rules).support is not Rules.support:
        for w in map(tuple, rules.support(h, state)):
            pairs.setdefault(key_of(w), (w, math.nan if law is None else 0.0))
    return pairs


def _features(rules: Rules, index: Mapping[RuleState, int]) -> Array | None:
    """Return φ (S, A, d), the indicators of `rules.after(state, action)`; None if `after` returns the pair itself."""
    names: dict[Hashable, int] = {}
    actions = range(rules.num_actions)
    pairs = np.array([[names.setdefault(rules.after(s, a), len(names)) for a in actions] for s in index])
    return None if len(names) == pairs.size else np.eye(len(names))[pairs]


def _incumbent(rules: Rules, index: Mapping[RuleState, int]) -> Array:
    return np.array([[rules.incumbent(h, state) for state in index] for h in range(rules.horizon)])


def _facts(rules: Rules, index: Mapping[RuleState, int]) -> dict[str, Any]:
    """Return the arguments that the constructors of `LinearCMDP` and `Task` share."""
    told = {"time_homogeneous": rules.time_homogeneous, "state_names": tuple(index)}
    return told | {"action_names": rules.action_names, "units": rules.units}


def _checked(h: int, state: RuleState, values: Iterable[Any], probabilities: ArrayLike) -> list[tuple[Any, float]]:
    """Return each value of a random input with its probability."""
    given, p = list(values), np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(given),) or not (p >= 0).all() or abs(p.sum() - 1) > TOLERANCE:
        raise InvalidProblem(
            f"chances at step {h}, state {state}: {len(given)} values have the probabilities {p.tolist()}, which sum "
            f"to {p.sum():.6g}: give one per value, not negative, with sum 1"
        )
    return list(zip(given, p.tolist(), strict=True))


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that moves a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("listing states", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def mostly(usual: int, other: int, num_actions: int, variation: float) -> Array:
    """Return probabilities (A,): one action, and another one with probability `variation`."""
    p = np.zeros(num_actions)
    p[usual] += 1 - variation
    p[other] += variation
    return p
