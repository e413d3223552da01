"""What tasks of episodes share: reports and whether they fit, plans, replays."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from episafe.checks import TOLERANCE, as_listed, as_whole_numbers, is_number
from episafe.errors import InvalidEpisode, InvalidProblem, UnlistedChance
from episafe.gym.step_reader import Reading
from episafe.problems.constrained_task import ConstrainedTask
from episafe.problems.policy import Policy
from episafe.problems.short_repr import short_repr, task_facts
from episafe.problems.states import ENDED, FIXED, START, Outside, is_same_state
from episafe.types import Amount, Array, Episode, IntArray, Move, Plan, amount, amounts

Signal = Literal["reward", "utility"]
SIGNALS: dict[Signal, str] = {"reward": "rewards", "utility": "utilities"}


class EpisodicTask(ConstrainedTask):
    """A task whose reports are episodes. Tasks say how their states are checked and which numbers they tell."""

    kind = "mdp"
    report_length = 1  # an episode
    changes = False  # a plan is for any episode
    unknown: Sequence[str] = ()  # which of "reward" and "utility" it does not tell, so that they have to be learned
    outside: Mapping[Outside, tuple[Any, ...]] = MappingProxyType({})
    reading: Reading | None = None
    move: Move | None = None
    if TYPE_CHECKING:
        horizon: int
        num_actions: int
        safe_policy: Policy
        time_homogeneous: bool
        norm_bound: float
        dim = property(lambda self: 0)
        one_hot = property(lambda self: False)
        initial_state = property(lambda self: None)

        def as_policy(self, given: Any) -> Policy:
            """A policy."""

        def as_candidate(self, given: Any) -> Any:
            """A policy as it is put on trial."""

        def reward_at(self, h: int, state: Any) -> Array:
            """r_h(state, ·), shape (A,)."""

        def utility_at(self, h: int, state: Any) -> Array:
            """u_h(state, ·), shape (A,), or (A, m)."""

    def with_limits(self, thresholds: Sequence[float], slacks: Sequence[float | None]) -> Self:
        """The same task with other thresholds and slacks, one a constraint, and the same incumbent."""
        limits = zip(self.constraints, thresholds, slacks, strict=True)
        return self._with(constraint=[replace(one, threshold=b, slack=slack) for one, b, slack in limits])

    def of_constraint(self, c: int) -> Any:
        """The same task as if constraint c were the only one."""
        outside = {state: (told[0], told[1 + c]) for state, told in self.outside.items()}
        cut: dict[str, Any] = {"outside": outside} if outside else {}
        if self.move is not None and self.num_constraints > 1:
            cut["move"] = move_of_constraint(self.move, c)
        return self._with(constraint=replace(self.constraints[c], name=""), **cut)

    def _with(self, **other: Any) -> Self:
        """The same task with something else, and the very same incumbent: whoever watches knows it by that."""
        made = replace(self, **other)  # type: ignore[type-var]
        made.__dict__["safe_policy"] = self.safe_policy
        return made

    @cached_property
    def random_start(self) -> bool:
        """Whether the first step is a dummy one, whose transition is the start."""
        return START in self.outside

    @property
    def may_end(self) -> bool:
        """Whether an episode may end early, in an absorbing state."""
        return ENDED in self.outside

    @cached_property
    def is_exogenous(self) -> bool:
        """Whether only chance is unknown, does not depend on what is done, and is seen afterwards."""
        return self.move is not None

    def __repr__(self) -> str:
        return short_repr(self, task_facts(self))

    def incumbent_plan(self, round: int, *facts: Any) -> Plan:
        """A plan of the incumbent, by the facts that `Plan` has after the policy."""
        return Plan(self.safe_policy, *facts)

    def as_plan(self, policy: Policy, *facts: Any) -> Plan:
        """A plan of a policy, by the facts that `Plan` has after it."""
        return Plan(policy, *facts)

    def read_report(self, episode: Episode) -> tuple[tuple[Any, IntArray] | None, Array | None]:
        """States (H+1,) and actions (H,), and the signals (H, 2) that the task does not tell; None where it tells both.

        Of an episode that has its totals alone: None and None. What does not fit is an InvalidEpisode.
        """
        for signal, name in SIGNALS.items():
            if getattr(episode, name) is not None:
                values = as_listed(name, getattr(episode, name), self.horizon, self._width(signal))
                if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
                    raise InvalidEpisode(f"{name} must be finite numbers, got {getattr(episode, name)!r}")
        self._check_totals(episode)
        if episode.trace is not None:
            self.read_trace(episode.trace)
        if episode.states is None and episode.actions is None:
            return None, None
        actions = as_whole_numbers("actions", episode.actions, self.horizon, self.num_actions)
        return (self._read_states(episode.states), actions), self._read_signals(episode)

    def check_report(self, episode: Episode) -> None:
        """Refuse an episode that does not fit, in every one of its states."""
        observed, _ = self.read_report(episode)
        if observed is not None:
            self._check_states(observed[0])

    def total(self, signal: Signal, episode: Episode) -> Any:
        """The total reward or utility of an episode that fits: as reported, else as the task tells it at its steps.

        Of the utility it is (m,) where there are several constraints.
        """
        reported = getattr(episode, f"total_{signal}")
        if reported is not None:
            return amount(np.asarray(reported, dtype=np.float64).reshape(-1))
        steps = getattr(episode, SIGNALS[signal])
        if steps is None:
            steps = self._told(signal, episode.states, episode.actions)
        total: Any = 0.0 if self._width(signal) is None else np.zeros(self.num_constraints)
        for step in np.asarray(steps).tolist() if self._width(signal) is None else steps:
            total += step  # one after another, as compiled loops do
        return total

    def _width(self, signal: Signal) -> int | None:
        """How many numbers a step has of a signal: m utilities, or None for one number that is no array."""
        return self.num_constraints if signal == "utility" and self.num_constraints > 1 else None

    def draw(self, plan: Plan, rng: np.random.Generator) -> tuple[int, Any]:
        """Toss the coin of a plan: which component acts, and what it is."""
        return plan.policy.draw(rng)

    def component(self, plan: Plan, index: int) -> Any:
        """What acts where the coin of a plan fell so."""
        return plan.policy.component(index)

    def report_values(self, episode: Episode) -> list[Any]:
        """An episode as a journal keeps it; `report_from` gives it back."""
        seen = [episode.states, episode.actions, episode.rewards, episode.utilities, episode.component]
        rest = [episode.trace, episode.total_utility, episode.total_reward]
        return seen + rest if any(value is not None for value in rest) else seen  # as before there was any of these

    def report_from(self, values: list[Any]) -> tuple[Episode]:
        """What an agent learns from, of what `report_values` gave."""
        return (Episode(*values),)

    def read_trace(self, trace: Any) -> tuple[Any, ...]:
        """What chance brings in each of the H steps; None for what was not seen, and so is NaN, which nothing equals.

        So is a value with NaN anywhere among its parts, as of a tuple, a dict or an array. A random start has a dummy
        first step, in which chance brings the start. What does not fit is an InvalidEpisode.
        """
        steps = self.horizon - int(self.random_start)
        is_pair = isinstance(trace, tuple | list) and len(trace) == 2 and isinstance(trace[1], tuple | list)
        if not is_pair or len(trace[1]) != steps:
            raise InvalidEpisode(
                f"trace must be (start, (w_1, …, w_{steps})), None for what was not seen, got {trace!r}"
            )
        start, chances = trace[0], tuple(None if _has_nan(w) else w for w in trace[1])
        if self.random_start:
            return (None if _has_nan(start) else self.as_state(start), *chances)
        if not (start is None or alike(start, self.initial_state)):
            raise InvalidEpisode(f"the trace starts at {start!r}, and episodes at {self.initial_state!r}: correct it")
        return chances

    def moved(self, h: int, state: Any, action: int, w: Any) -> tuple[Any, float, Amount]:
        """Next state, reward and utility of step h, given what chance brings; None, not seen, is refused.

        The utility is (m,) where there are several constraints.
        """
        if state is ENDED:
            return ENDED, self.outside[ENDED][0], amount(self.outside[ENDED][1:])
        if w is None:
            raise InvalidEpisode(
                f"the trace does not show what chance brought at step {h}: it cannot be replayed there"
            )
        if state is START:
            return w, self.outside[START][0], amount(self.outside[START][1:])
        if self.move is None:
            raise InvalidProblem("nobody said how the system moves given chance: give move=… to replay traces")
        following, reward, utility = self.move(h - int(self.random_start), state, action, own_copy(w))
        following = self.as_state(following)
        signals = (reward, utility) if self.num_constraints == 1 else (reward, *utility)
        if not all(-TOLERANCE <= signal <= 1 + TOLERANCE for signal in signals):
            raise InvalidProblem(
                f"move at step {h}, state {state!r}, action {action} gives reward {reward!r} and utility {utility!r}: "
                "both must lie in [0, 1]"
            )
        if len(signals) != 1 + self.num_constraints:
            raise InvalidProblem(
                f"move at step {h}, state {state!r}, action {action} gives the utility {utility!r}, and there are "
                f"{self.num_constraints} constraints: give one number each"
            )
        return following, float(reward), amount(signals[1:])

    def replay(self, policy: Any, trace: Any, rng: np.random.Generator, actions: Any = None) -> Episode:
        """The episode that a policy has on a trace. It sees w_h after its action at step h, never before.

        Args:
            policy: who acts; of a mixture one component, drawn with `rng`.
            trace: (start, (w_1, …, w_H)), as `episode.trace` has it.
            rng: for the policy's own randomness: a fresh draw for each trace, never one seed for all.
            actions: (H,), where just these are to be taken.
        """
        policy = policy if hasattr(policy, "draw") else self.as_policy(policy)
        component, acting = policy.draw(rng)
        taken = None if actions is None else as_whole_numbers("actions", actions, self.horizon, self.num_actions)
        state = self.start
        states, done = [state], np.zeros(self.horizon, dtype=np.int64)
        rewards, utilities = np.zeros(self.horizon), np.zeros((self.horizon, self.num_constraints))
        for h, w in enumerate(self.read_trace(trace)):
            done[h] = acting.act(h, state, rng) if taken is None else taken[h]
            state, rewards[h], utilities[h] = self.moved(h, state, int(done[h]), w)
            states.append(state)
        drawn = component if len(policy.components) > 1 else None
        totals = utilities[:, 0] if self.num_constraints == 1 else utilities
        return Episode(states, done, rewards, totals, drawn, trace=trace)

    @property
    def start(self) -> Any:
        """s₁ as all states are read: it may be given as a number of another type."""
        return self.as_state(self.initial_state)

    def starts(self, states: Any) -> bool:
        """Whether an episode starts where all do."""
        return is_same_state(self.as_state(states[0]), self.start)

    def require_moves(self, episode: Episode) -> None:
        """Refuse an episode of whose trace `move` fails to make a step, from the state and the action reported there.

        Where `move` makes something else of it, or what is no step at all, that is for `replay_fault` to say.
        """
        (states, actions), _ = self.read_report(episode)  # type: ignore[misc]
        for h, w in enumerate(self.read_trace(episode.trace)):
            if w is None:
                continue
            try:
                self.moved(h, states[h], int(actions[h]), w)
            except InvalidProblem:
                continue
            except Exception as error:
                said = str(error) if isinstance(error, UnlistedChance) else f"{type(error).__name__}: {error}"
                kind = UnlistedChance if isinstance(error, UnlistedChance) else InvalidEpisode
                raise kind(
                    f"{_place(h, states[h], actions[h])}: move fails at what chance brought there, {w!r} ({said}): "
                    "correct the trace, or move; or write None for it, and the episode counts as utility 0 from there"
                ) from error

    def replay_fault(self, episode: Episode) -> str:
        """Where an episode is not what `move` makes of its trace, in words; "" if nowhere. What was not seen is passed.

        Each step is compared by itself, from the state and the action that were reported.
        """
        (states, actions), _ = self.read_report(episode)  # type: ignore[misc]
        total, seen_all = np.zeros(1 + self.num_constraints), True
        if not self.starts(states):
            return f"it starts at {states[0]!r}, and episodes at {self.initial_state!r}"
        for h, w in enumerate(self.read_trace(episode.trace)):
            if w is None and states[h] is not ENDED:
                seen_all = False
                continue
            try:
                made = self.moved(h, states[h], int(actions[h]), w)
            except Exception as error:  # a move that cannot be made is no way to what was seen
                return f"{_place(h, states[h], actions[h])}: move fails: {error}"
            total += np.append(made[1], made[2])
            seen = (states[h + 1], *(None if s is None else s[h] for s in (episode.rewards, episode.utilities)))
            for name, ours, theirs in zip(("state", "reward", "utility"), made, seen, strict=True):
                if theirs is not None and not alike(ours, theirs):
                    return f"{_place(h, states[h], actions[h])}: {_differs(name, ours, theirs)}"
            if not is_same_state(made[0], states[h + 1]):
                ours, theirs = (
                    one.tolist() if isinstance(one, np.ndarray) else one for one in (made[0], states[h + 1])
                )
                return (
                    f"{_place(h, states[h], actions[h])}: {_differs('state', ours, theirs)}, which is not the very "
                    "same; a policy may act otherwise there: let move round as the system does, and give the same type"
                )
        stated = (episode.total_reward, total[0]), (episode.total_utility, amount(total[1:]))
        for (theirs, ours), name in zip(stated, SIGNALS, strict=True):
            if seen_all and theirs is not None and not alike(ours, amount(np.ravel(theirs))):
                return f"in total: {_differs(name, ours, theirs)}"
        return ""

    def most_utility(self, episode: Episode) -> float:
        """The most that the total utility of an episode can be, by its trace: 1 at a step of which nobody can say."""
        (states, actions), _ = self.read_report(episode)  # type: ignore[misc]
        total = 0.0
        for h, w in enumerate(self.read_trace(episode.trace)):
            try:
                total += float(self.moved(h, states[h], int(actions[h]), w)[2])
            except Exception:  # not seen, or a move that cannot be made
                total += 1.0
        return total

    def seen_by(self, c: int, report: tuple[Any, ...]) -> tuple[Any, ...]:
        """A report as constraint c sees it, of several."""
        (episode,) = report
        utilities = None if episode.utilities is None else np.asarray(episode.utilities)[:, c]
        total = None if episode.total_utility is None else float(amounts(episode.total_utility)[c])
        return (replace(episode, utilities=utilities, total_utility=total),)

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

    def numbers(self, policies: list[Policy]) -> list[Any]:
        """Arrays by which two tasks, and policies for them, are told apart."""
        slacks = [math.nan if one.slack is None else one.slack for one in self.constraints]
        sizes = [self.horizon, self.num_actions, self.dim]
        limits = [one.threshold for one in self.constraints]
        kept = [sizes, [*limits, *slacks], [self.one_hot, self.time_homogeneous]]
        stated = [] if self.norm_bound == math.sqrt(self.dim) else [[self.norm_bound]]
        least = [one.least_total for one in self.constraints]
        least = [least] if any(least) else []
        return [*kept, *stated, *least, *self._told_numbers(policies)]

    def places(self, episode: Episode) -> list[tuple[int, Any, int]]:
        """Steps, states and actions of an episode, where these alone show what the incumbent does; none of a table."""
        return []

    def as_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The task as named arrays; None where it is given by functions."""
        return None

    def _read_states(self, states: Any) -> Any:
        raise NotImplementedError

    def _told(self, signal: Signal, states: Any, actions: Any) -> Any:
        """What the task tells of a signal at each step, (H,), or (H, m) utilities of several constraints."""
        raise NotImplementedError

    def _check_states(self, states: Any) -> None:
        """Refuse states that the task cannot describe."""

    def _told_numbers(self, policies: list[Policy]) -> list[Any]:
        raise NotImplementedError

    def _check_totals(self, episode: Episode) -> None:
        """Totals are numbers, agree with the steps where these are reported, and replace what is not reported."""
        for name, plural in SIGNALS.items():
            total, steps = getattr(episode, f"total_{name}"), getattr(episode, plural)
            m = self._width(name) or 1
            if total is not None and not _are_numbers(total, m):
                wanted = "a number" if m == 1 else f"{m} numbers, one a constraint"
                raise InvalidEpisode(f"total_{name} must be {wanted}, got {total!r}: give the sum over the episode")
            if total is not None and not np.isfinite(total).all():
                raise InvalidEpisode(f"total_{name} must be finite, got {total!r}: leave out episodes nobody could sum")
            if total is not None and steps is not None:
                summed = np.sum(steps, axis=0)
                if np.abs(summed - np.asarray(total).reshape(summed.shape)).max() > TOLERANCE * self.horizon:
                    raise InvalidEpisode(f"total_{name} is {total!r}, and {plural} sum to {summed}: give one")
        known = (episode.states is not None, episode.actions is not None)
        if known[0] != known[1]:
            raise InvalidEpisode("states and actions belong together: report both, or totals alone")
        if not known[0] and episode.total_utility is None:
            raise InvalidEpisode(
                "the episode has neither states and actions nor a total_utility: report them, or es.Episode.of_totals"
            )

    def _read_signals(self, episode: Episode) -> Array | None:
        """Rewards and utilities (H, 1 + m), 0 for what the task tells; None where it tells both."""
        if not self.unknown:
            return None
        seen, m = np.zeros((self.horizon, 1 + self.num_constraints)), self.num_constraints
        for name, plural in SIGNALS.items():
            if name in self.unknown:
                given = getattr(episode, plural)
                if given is None:
                    raise InvalidEpisode(f"{plural} are missing: the task does not tell the {name}, so episodes must")
                seen[:, 0 if name == "reward" else 1 if m == 1 else slice(1, None)] = given
        low, high = seen.min(), seen.max()
        if low < -TOLERANCE or high > 1 + TOLERANCE:
            raise InvalidEpisode(f"rewards and utilities must lie in [0, 1], got {low:.6g} to {high:.6g}")
        return seen


def _are_numbers(total: Any, count: int) -> bool:
    """Whether these are so many numbers, nested or not."""
    try:
        numbers = np.ravel(total)
    except ValueError:  # lists of unlike lengths
        return False
    return len(numbers) == count and all(map(is_number, numbers))


def move_of_constraint(move: Move, c: int) -> Move:
    """A move of several constraints as if constraint c were the only one."""
    if hasattr(move, "of_constraint"):
        return move.of_constraint(c)

    def cut(h: int, state: Any, action: int, w: Any) -> tuple[Any, float, float]:
        following, reward, utility = move(h, state, action, w)
        return following, reward, utility[c]

    return cut


def _has_nan(w: Any) -> bool:
    """Whether a value of chance is NaN or masked, or has such a one anywhere among its parts."""
    if np.ma.is_masked(w):
        return True
    if isinstance(w, float | Decimal):
        return w != w
    if isinstance(w, tuple | list | set | frozenset):
        return any(map(_has_nan, w))
    if isinstance(w, np.ndarray | np.generic):
        if w.dtype.kind in "fcmM":
            return bool(np.isnan(w).any())
        return w.dtype.kind in "OV" and any(map(_has_nan, np.ravel(w).tolist()))
    if isinstance(w, Mapping):
        return any(map(_has_nan, (*w, *w.values())))
    return is_dataclass(w) and any(_has_nan(getattr(w, part.name)) for part in fields(w))


@np.printoptions(legacy="1.25")  # numbers without their types
def _place(h: int, state: Any, action: Any) -> str:
    return f"at step {h}, state {state!r}, action {action}"


@np.printoptions(legacy="1.25")
def _differs(name: str, ours: Any, theirs: Any) -> str:
    return f"move gives the {name} {ours!r}, and the episode has {theirs!r}"


def own_copy(w: Any) -> Any:
    """What chance brought, as one call of `move` may use it up: the next policy is replayed on all of it."""
    if type(w) in FIXED or isinstance(w, bytes | np.generic) or (type(w) is tuple and FIXED.issuperset(map(type, w))):
        return w
    try:
        return deepcopy(w)
    except Exception:  # an object of somebody's that has no copy
        return w


def alike(one: Any, other: Any) -> bool:
    """Whether two states, or two numbers, are the same up to rounding; numpy's numbers count as numbers."""
    if type(one) is type(other) is int:
        return one == other
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(alike, one, other))
    ours, theirs = np.asarray(one), np.asarray(other)
    if ours.dtype.kind in "biuf" and theirs.dtype.kind in "biuf":
        return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return bool(np.array_equal(ours, theirs))
