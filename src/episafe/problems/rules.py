"""Problems given by rules: how the system moves given chance, and what chance can bring. Small ones are listed."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from episafe.core.checks import TOLERANCE
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.policy import TablePolicy
from episafe.core.task import OneHot, TableFeatures, Task, make_constraints
from episafe.core.types import Array, IntArray, PerLimit
from episafe.problems.linear import LinearCMDP, Tables
from episafe.problems.moves import NOWHERE, ListedMove, chance_key, is_exogenous

RuleState = tuple[int, ...]
Chance = tuple[Iterable[Any], ArrayLike]  # the values of one random input, and their probabilities
Draw = tuple[Any, ...]  # what chance brings in a step: one value of each random input
MAX_LISTED = 1_000  # states that `listed` makes arrays of
MAX_BYTES = 2 << 30  # of P
BAR_AFTER = 20_000  # triples of step, state and action, from which on a bar shows the progress of listing


class Rules(ABC):
    """A system that is moved by actions and chance. Subclass it to list or play a problem of your own.

    Attributes:
        horizon: H.
        num_actions: A.
        shape: how many values each number of a state takes.
        start: the first state.
        time_homogeneous: whether chance and moves are the same at every step.
        names: the names of the limits, if `move` returns several utilities.
        action_names, units: for people, in reports.
    """

    horizon: int
    num_actions: int
    shape: RuleState
    start: RuleState
    time_homogeneous: bool = False
    names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    units: Mapping[str, str] = {}  # replaced by subclasses, never changed

    @abstractmethod
    def move(self, h: int, state: RuleState, action: int, w: Draw) -> tuple[RuleState, float, float | Sequence[float]]:
        """Return the next state, the reward and the utility in [0, 1] given chance; nothing else may be random.

        The utility is a number, or a tuple with one number per limit.
        """

    @abstractmethod
    def incumbent(self, h: int, state: RuleState) -> ArrayLike:
        """Return the action probabilities (A,) of the policy in use today."""

    def chances(self, h: int, state: RuleState) -> list[Chance] | None:
        """Return the law of chance in this step: independent random inputs, each with values and probabilities.

        Only a simulation needs it. None if the law is unknown; then give `support`.
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
        """Return all that the next state depends on. Pairs with the same value share what is learned."""
        return (state, action)


class Listing:
    """The reachable states of rules, numbered as they are found, and every move from them as arrays.

    Attributes:
        index: the number of each state.
        values: the W values of chance, as tuples.
        next_states, rewards, utilities: as in `ListedMove`, (n, S, A, W[, m]).
        P, reward, utility, law: (n, S, A, S), (n, S, A), (n, S, A, m), (n, S, W) under the law; None without a law.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules, self.index = rules, {rules.start: 0}
        self.values: dict[Hashable, Draw] = {}
        self._steps = 1 if rules.time_homogeneous else rules.horizon
        self._outcomes: dict[tuple[Hashable, ...], tuple[list[Draw], Array, IntArray]] = {}
        found = self._explored()
        S, A, W = len(self.index), rules.num_actions, len(self.values)
        num_bytes = 8 * rules.horizon * S * A * S
        if num_bytes > MAX_BYTES and not rules.time_homogeneous:
            raise InvalidProblem(
                f"P of {rules.horizon} steps, {S} states and {A} actions takes {num_bytes / 2**30:.3g} GiB: state "
                "fewer steps, states or actions, or use es.SampledCMDP or es.from_gymnasium"
            )
        m = next(iter(found.values()))[4].shape[2]
        shape = (self._steps, S, A, W)
        self.next_states, self.rewards = np.full(shape, NOWHERE), np.zeros(shape)
        self.utilities = np.zeros((*shape, m))
        self.P, self.reward = np.zeros((self._steps, S, A, S)), np.zeros((self._steps, S, A))
        self.utility, self.law = np.zeros((self._steps, S, A, m)), np.zeros((self._steps, S, W))
        cell = np.arange(A) * S
        for (h, s), (p, numbers, following, r, u) in found.items():  # following and r (W_here, A), u (W_here, A, m)
            self.next_states[h, s][:, numbers], self.rewards[h, s][:, numbers] = following.T, r.T
            self.utilities[h, s][:, numbers] = np.moveaxis(u, 0, 1)
            # sums in the order of the values, one after another, so that they do not depend on how S grew
            weight = np.broadcast_to(p[:, None], following.shape)
            self.P[h, s] = np.bincount((cell + following).ravel(), weight.ravel(), A * S).reshape(A, S)
            self.reward[h, s] = np.cumsum(weight * r, axis=0)[-1]
            self.utility[h, s] = np.cumsum(weight[..., None] * u, axis=0)[-1]
            np.add.at(self.law[h, s], numbers, p)
        self.has_law = bool(np.isfinite(self.law).all())

    def _explored(self) -> dict[tuple[int, int], tuple[Array, IntArray, IntArray, Array, Array]]:
        """Return, for each (h, s): probabilities and numbers of the values, next states, rewards and utilities."""
        rules, index, waiting, found = self.rules, self.index, [self.rules.start], {}
        with _bar(rules) as advance:
            while waiting:
                state = waiting.pop()
                for h in range(self._steps):
                    values, p, numbers = self._outcomes_at(h, state)
                    found_by = [[rules.move(h, state, a, w) for w in values] for a in range(rules.num_actions)]
                    moved = [tuple(zip(*outcomes, strict=True)) for outcomes in found_by]
                    for following in {one for states, _, _ in moved for one in states} - index.keys():
                        _require_inside(rules.shape, following, f"at step {h}, state {state}")
                    for row in zip(*(states for states, _, _ in moved), strict=True):
                        for following in row:
                            if following not in index:
                                index[following] = len(index)
                                waiting.append(following)
                    number = index.__getitem__
                    comes = np.array([[number(one) for one in states] for states, _, _ in moved]).T
                    r = np.array([rewards for _, rewards, _ in moved], dtype=np.float64).T
                    u = np.array([utilities for _, _, utilities in moved], dtype=np.float64)
                    u = np.moveaxis(u.reshape(*u.shape[:2], -1), 0, 1)
                    found[h, index[state]] = p, numbers, comes, r, u
                advance(len(index) - len(waiting), len(index))
                if len(index) > MAX_LISTED:
                    raise InvalidProblem(
                        f"more than {MAX_LISTED} states can be reached, too many for arrays: play the rules with "
                        "es.SampledCMDP(…, move=…, chance=…)"
                    )
        return found

    def _outcomes_at(self, h: int, state: RuleState) -> tuple[list[Draw], Array, IntArray]:
        """Return the values of chance with their probabilities (NaN without a law) and numbers."""
        law = self.rules.chances(h, state)
        each = None if law is None else [_checked(h, state, *one) for one in law]
        pairs = [] if each is None else [
            (tuple(v for v, _ in row), math.prod(p for _, p in row)) for row in product(*each)
        ]  # fmt: skip
        pairs = [(w, p) for w, p in pairs if p > 0]
        if each is None or type(self.rules).support is not Rules.support:
            known = {chance_key(w) for w, _ in pairs}
            rest = math.nan if each is None else 0.0
            pairs += [(tuple(w), rest) for w in self.rules.support(h, state) if chance_key(tuple(w)) not in known]
        key = tuple((chance_key(w), p if p == p else None) for w, p in pairs)
        if key not in self._outcomes:
            for w, _ in pairs:
                self.values.setdefault(chance_key(w), w)
            order = {name: i for i, name in enumerate(self.values)}
            numbers = np.array([order[chance_key(w)] for w, _ in pairs])
            self._outcomes[key] = [w for w, _ in pairs], np.array([p for _, p in pairs]), numbers
        return self._outcomes[key]

    def move(self) -> ListedMove:
        """Return the moves as arrays; values of chance outside of the support are asked of the rules."""
        rules, index, states = self.rules, self.index, tuple(self.index)

        def unlisted(h: int, state: int, action: int, w: Draw) -> tuple[int, float, float | Sequence[float]]:
            following, reward, utility = rules.move(h, states[state], action, tuple(w))
            if following not in index:
                raise InvalidEpisode(
                    f"at step {h}, state {states[state]}, action {action} chance {w!r} leads to {following}, which "
                    "is not listed, because no value in chances or support leads there: extend support"
                )
            return index[following], reward, utility

        arrays = self.next_states, self.rewards, self.utilities
        return ListedMove(tuple(self.values.values()), *arrays, unlisted)

    def incumbent(self) -> Array:
        """Return the incumbent's table (H, S, A)."""
        rules = self.rules
        return np.array([[rules.incumbent(h, state) for state in self.index] for h in range(rules.horizon)])

    def features(self) -> Array | None:
        """Return φ (S, A, d) that marks `rules.after(state, action)`; None if that is the pair itself."""
        names: dict[Hashable, int] = {}
        actions = range(self.rules.num_actions)
        pairs = np.array([[names.setdefault(self.rules.after(s, a), len(names)) for a in actions] for s in self.index])
        return None if len(names) == pairs.size else np.eye(len(names))[pairs]


def listed(
    rules: Rules,
    threshold: PerLimit,
    *,
    slack: PerLimit = None,
    least_total: PerLimit = 0.0,
    origin: Mapping[str, str | int | float] | None = None,
) -> LinearCMDP:
    """Return the rules as arrays: every reachable state, with exact P, mean reward and mean utility.

    If chance does not depend on the actions, the problem is exogenous and its task has `move`. Features mark
    `rules.after(state, action)`. States are numbered as they are found: `task.state_names[s]` is the state s of the
    rules. For several utilities give lists of m thresholds, or mappings by `rules.names`; likewise slacks.

    Args:
        rules: the system; it must have a law of chance (`chances`). Without one use `listed_task`.
        threshold: b, the expected total utility of an episode to keep.
        slack: by how much the incumbent exceeds b on the real system. None: its exact slack under the law of
            `rules.chances`, which is right in a simulation of that law only.
        least_total: a total utility that every episode is certain to reach.
        origin: plain values that are kept with every record.
    """
    return LinearCMDP(**tables(rules), threshold=threshold, slack=slack, least_total=least_total, origin=origin)


def tables(rules: Rules) -> Tables:
    """Return the arguments of a `LinearCMDP`, all but the limits."""
    found = Listing(rules)
    if not found.has_law:
        raise InvalidProblem(
            "the rules have no law of chance, so there is no P: give chances(h, state) to simulate them, or use "
            "episafe.problems.rules.listed_task(rules, threshold, slack=…) for a live system"
        )
    H, start = rules.horizon, found.index[rules.start]
    move, law = found.move(), found.law / found.law.sum(axis=2, keepdims=True)
    exogenous = {"move": move, "law": law} if is_exogenous(move, law, start, H) else {}
    P = found.P / found.P.sum(axis=3, keepdims=True)  # products of probabilities sum to 1 up to rounding
    P, reward, utility = (np.broadcast_to(one, (H, *one.shape[1:])) for one in (P, found.reward, found.utility))
    utilities = [np.ascontiguousarray(utility[..., c]) for c in range(utility.shape[3])]
    return {
        "P": P,
        "reward": np.ascontiguousarray(reward),
        "utility": utilities[0] if len(utilities) == 1 else utilities,
        "phi": found.features(),
        "initial_state": start,
        "safe_policy": found.incumbent(),
        "time_homogeneous": rules.time_homogeneous,
        "names": rules.names,
        "state_names": tuple(found.index),
        "action_names": rules.action_names,
        "units": rules.units,
        **exogenous,
    }


def listed_task(rules: Rules, threshold: PerLimit, *, slack: PerLimit = None, least_total: PerLimit = 0.0) -> Task:
    """Return the task of rules on a live system, whose law of chance is unknown: states are listed, P is not needed.

    Rewards and utilities follow from `move` and what chance brought. The arguments are those of `listed`.
    """
    found = Listing(rules)
    phi = found.features()
    return Task(
        *(rules.horizon, rules.num_actions),
        constraints=make_constraints(None, threshold, slack, rules.names, least_total),
        incumbent=TablePolicy(found.incumbent(), "incumbent"),
        initial_state=found.index[rules.start],
        num_states=len(found.index),
        features=OneHot() if phi is None else TableFeatures(phi),
        time_homogeneous=rules.time_homogeneous,
        move=(move := found.move()),
        support=move.support,
        state_names=tuple(found.index),
        action_names=rules.action_names,
        units=dict(rules.units),
    )


def _require_inside(shape: RuleState, state: RuleState, place: str) -> None:
    if len(state) != len(shape) or not all(0 <= number < size for number, size in zip(state, shape, strict=True)):
        raise InvalidProblem(
            f"{place}: move leads to {state}, outside of shape {shape} (numbers from 0 to less than each of these): "
            "correct move or shape"
        )


def _checked(h: int, state: RuleState, values: Iterable[Any], probabilities: ArrayLike) -> list[tuple[Any, float]]:
    """Return each value of a random input with its probability."""
    given, p = list(values), np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(given),) or not (p >= 0).all() or abs(p.sum() - 1) > TOLERANCE:
        raise InvalidProblem(
            f"chances at step {h}, state {state}: {len(given)} values have the probabilities {p.tolist()}, which sum "
            f"to {p.sum():.6g}: give one for each value, none negative, with sum 1"
        )
    return list(zip(given, p.tolist(), strict=True))


@contextmanager
def _bar(rules: Rules) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that moves a progress bar on a terminal; silent for small problems."""
    num_moves = math.prod(rules.shape) * rules.num_actions * (1 if rules.time_homogeneous else rules.horizon)
    if num_moves < BAR_AFTER or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("listing states", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def mostly(usual: int, other: int, num_actions: int, variation: float) -> Array:
    """Return probabilities (A,) of a policy that takes one action, and another with probability `variation`."""
    p = np.zeros(num_actions)
    p[usual] += 1 - variation
    p[other] += variation
    return p
