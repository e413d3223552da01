"""The interface of every agent: plan, learn. The base owns caching, replanning, validation and the last resort."""

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from episafe.agents import plan_arrays
from episafe.agents.plan import Plan, Source
from episafe.agents.plan_arrays import Issued
from episafe.checks import TOLERANCE
from episafe.errors import InvalidEpisode
from episafe.learning.constants import Level
from episafe.learning.policy_arrays import Shelf, taken_down
from episafe.learning.regression import Regression
from episafe.learning.replanning import Replanning
from episafe.problems.policy import Policy
from episafe.problems.sampled import AnyTask, SampledTask
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray

__all__ = ["Agent", "Episode", "Plan", "Source", "unknown_signals"]

VERSION = 1  # of the names and meanings of the entries of a state
STORABLE = "give it the methods _learned_state and _restore_learned (see agents/dope.py)"
HALTED = "halted: "  # how the reason of every plan of a halted agent begins
FAILED = "planning failed: "  # and of a plan that an error left


@dataclass(frozen=True)
class Episode:
    """What was seen in one episode.

    Attributes:
        states: s_1..s_{H+1}, length H+1.
        actions: a_1..a_H, length H.
        rewards, utilities: observed ones, length H, for learners that do not know them.
        component: which policy of a mixture acted.
    """

    states: Any
    actions: Any
    rewards: Any = None
    utilities: Any = None
    component: int | None = None


class Agent(ABC):
    """Plans, and learns from episodes. Subclasses say what to propose and what to observe, nothing else.

    Any failure inside a certified agent's planning deploys the incumbent, with the reason in the plan.
    """

    name: ClassVar[str]
    certified: ClassVar[bool]  # whether every plan is the incumbent or passed the check
    level: Level = "heuristic"

    def __init__(self, task: AnyTask, replan: Replanning) -> None:
        _refuse_what_is_no_task(task)
        if isinstance(replan, type) or not hasattr(replan, "due"):
            raise TypeError(f"replan must be a rule such as es.Every() or es.Doubling(0.3), got {replan!r}")
        self.task = task
        self.replan = replan
        self._plan: Plan | None = None
        self.information_then: Array = np.zeros(0)
        self._learned = False
        self.halted = ""  # why exploration was stopped; "" while it goes on
        self.failed = ""  # why planning is known to fail, where it is made again: it is then not tried
        self.num_runs = 0  # by `run`, which draws other random numbers in each
        self.logs: list[str] = []  # SHA-256 of those learned: one that is learned twice would count twice

    def plan(self) -> Plan:
        """The plan for the next episode: the last one, unless it is time for a new one. Deterministic."""
        if self._plan is None:
            self._plan = replace(self._attempt(), id=0)
        elif halt_of(self._plan.reason) != self.halted or (not self.halted and self._learned and self._due()):
            self._plan = replace(self._attempt(), id=self._plan.id + 1)
        else:
            return self._plan
        self.information_then, self._learned = self._information().copy(), False
        return self._plan

    @property
    def plan_in_force(self) -> Plan:
        """The last plan that was made."""
        assert self._plan is not None
        return self._plan

    def recent_plans(self) -> list[Plan]:
        """The plan in force and, where they count for a certificate, those that may still be reported."""
        return self._issued_plans().plans

    @property
    def is_used(self) -> bool:
        """Whether it has planned or learned anything."""
        return self._plan is not None or self._learned

    @property
    def is_stored(self) -> bool:
        """Whether `state` is known to hold all of it: so for the agents of this package, not for those of others."""
        return type(self).__module__.startswith("episafe.agents.")

    def halt(self, reason: str) -> None:
        """Stop exploring: from now on every plan is the incumbent, with this reason. Learning goes on."""
        self.halted = as_reason(reason)

    def resume_exploring(self) -> None:
        """Plan again as if never halted. Nothing in episafe calls this: it is for a person who knows why."""
        self.halted = ""

    def _due(self) -> bool:
        """Whether to plan again, now that something was learned."""
        return self.replan.due(self.information_then, self._information())

    def adopt(self, plan: Plan, information_then: Array) -> None:
        """Go on from a plan that a compiled loop made for this agent, and that was learned from since."""
        self._plan, self.information_then, self._learned = plan, information_then, True

    def learn(self, episode: Episode, plan_id: int | None = None) -> None:
        """Take in one episode, of whatever policy; an episode that does not fit the task changes nothing."""
        states, actions = self._checked(episode)
        if plan_id is not None and (self._plan is None or plan_id not in range(self._plan.id + 1)):
            raise InvalidEpisode(f"plan_id {plan_id!r} was not issued by this agent")
        seen = self._seen(episode)
        weighed = self._weigh(episode, states, actions, plan_id)
        self._observe(states, actions)
        if seen is not None:
            self._observe_signals(states, actions, seen)
        self._take_in(weighed)
        self._learned = True

    def check(self, episode: Episode) -> None:
        """Refuse an episode that does not fit the task, as `learn` would, and learn nothing."""
        states, _ = self._checked(episode)
        self._seen(episode)
        if isinstance(self.task, SampledTask):
            for h, state in enumerate(states[:-1]):
                self.task.described(h, state)

    def _attempt(self) -> Plan:
        if self.halted:
            return self._incumbent(HALTED + self.halted)
        if self.failed:
            return self._incumbent(self.failed)
        if not self.certified:
            return self._propose()
        try:
            return self._propose()
        except Exception as error:  # the last resort: whatever went wrong, the incumbent is safe
            return self._incumbent(f"{FAILED}{type(error).__name__}: {error}")

    def _incumbent(self, reason: str, utility_bound: float = np.nan) -> Plan:
        return Plan(self.task.safe_policy, "safe", utility_bound=utility_bound, level=self.level, reason=reason)

    @abstractmethod
    def _propose(self) -> Plan:
        """A plan from all that was learned."""

    @abstractmethod
    def _observe(self, states: Any, actions: IntArray) -> None:
        """Take in a checked episode: states (H+1,), actions (H,)."""

    def _observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:  # noqa: B027  # most need none
        """Take in the rewards and utilities `seen` (H, 2) of that episode, where the task does not tell them."""

    def _weigh(self, episode: Episode, states: Any, actions: IntArray, plan_id: int | None) -> Any:
        """What the episode says of the policy that was deployed, for agents that certify by that; may refuse it."""
        return None

    def _take_in(self, weighed: Any) -> None:
        """Add what `_weigh` returned."""
        return None

    @abstractmethod
    def _information(self) -> Array:
        """How much is known, for the replanning rule."""

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say of this agent, as plain values."""
        return {"agent": self.name, "replan": repr(self.replan), "level": self.level}

    def state(self) -> State:
        """All that decides later plans, as named arrays: plain numbers and text, copied.

        An agent that was built alike, for the same task, goes on from it bit for bit: see `restore`.
        """
        shelf = Shelf(self.task, self._own_policy())
        learned = self._learned_state(shelf)
        plans = plan_arrays.stored(self._issued_plans(), shelf)
        said = {"version": VERSION, "fingerprint": self.fingerprint(), "settings": _as_json(self.settings())}
        then = {"information_then": self.information_then, "learned": self._learned}
        own = {"num_runs": self.num_runs, "halted": self.halted, "logs": np.array(self.logs, dtype=np.str_)}
        return under("agent", {**said, **then, **own}) | learned | plans | shelf.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on, bit for bit, from what `state` gave; the agent must have been built alike, for the same task.

        What does not fit is a DamagedFile or, if it is of another agent, a ValueError; the agent is then unchanged.
        """
        saved = Saved(state)
        agent = saved.under("agent")
        self._refuse_others(agent)
        twin = copy.copy(self)  # it takes over only when everything fits
        twin._learned, twin.num_runs = bool(agent.flags("learned", ())), agent.whole("num_runs")
        twin.halted, twin.logs = agent.text("halted"), agent.texts("logs", (None,)).tolist()
        regression = twin._restore_learned(saved)
        policies = taken_down(saved, self.task, regression, self._own_policy())
        twin._restore_certificate(saved, policies)
        twin._restore_plans(saved, plan_arrays.restored(saved, policies))
        shape = (0,) if twin._plan is None else twin._information().shape
        twin.information_then = agent.numbers("information_then", shape)
        saved.end()
        self.__dict__.update(twin.__dict__)

    def fingerprint(self) -> str:
        """SHA-256 over the settings and what the task tells; of functions, what they say of the initial state."""
        return plan_arrays.fingerprint(type(self).__name__, self.settings(), self.task, self._own_policy())

    def _refuse_others(self, saved: Saved) -> None:
        version = saved.whole("version", 1)
        if version > VERSION:
            saved.refuse("version", f"is {version}, and this episafe knows {VERSION}: update it")
        said, settings = saved.text("settings"), self.settings()
        if saved.text("fingerprint") == self.fingerprint():
            return
        theirs = _from_json(said)
        names = sorted(name for name in settings.keys() | theirs.keys() if settings.get(name) != theirs.get(name))
        raise ValueError(
            f"the state is of another agent: {', '.join(names) or 'what the task tells'} differs; build it as it was"
        )

    def _own_policy(self) -> Policy | None:
        """A policy that the agent was built with, beside the incumbent."""
        return None

    def _learned_state(self, shelf: Shelf) -> State:
        """What was learned, as named arrays; policies are put on the shelf."""
        raise NotImplementedError(f"{type(self).__name__} cannot be stored: {STORABLE}")

    def _restore_learned(self, saved: Saved) -> Regression | None:
        """Replace what was learned, and return the regression, where there is one; nothing may be changed in place."""
        raise NotImplementedError(f"{type(self).__name__} cannot be restored: {STORABLE}")

    def _restore_certificate(self, saved: Saved, policies: list[Policy]) -> None:  # noqa: B027  # most have none
        """Replace the certificate; nothing may be changed in place."""

    def _issued_plans(self) -> Issued:
        return Issued([], -1) if self._plan is None else Issued([self._plan], 0)

    def _restore_plans(self, saved: Saved, issued: Issued) -> None:
        self._plan = None if issued.current < 0 else issued.plans[issued.current]

    def _seen(self, episode: Episode) -> Array | None:
        """Rewards and utilities (H, 2), 0 for what the task tells; None where it tells both."""
        unknown = unknown_signals(self.task)
        if not unknown:
            return None
        seen = np.zeros((self.task.horizon, 2))
        for g, (name, plural) in enumerate((("reward", "rewards"), ("utility", "utilities"))):
            values = getattr(episode, plural)
            if name in unknown:
                if values is None:
                    raise InvalidEpisode(f"{plural} are missing: the task does not tell the {name}, so episodes must")
                seen[:, g] = values
        if seen.min() < -TOLERANCE or seen.max() > 1 + TOLERANCE:
            raise InvalidEpisode(f"rewards and utilities must lie in [0, 1], got {seen.min():.6g} to {seen.max():.6g}")
        return seen

    def _checked(self, episode: Episode) -> tuple[Any, IntArray]:
        task = self.task
        for name in ("rewards", "utilities"):
            if getattr(episode, name) is not None:
                values = _listed(name, getattr(episode, name), task.horizon)
                if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
                    raise InvalidEpisode(f"{name} must be finite numbers, got {getattr(episode, name)!r}")
        actions = _whole_numbers("actions", episode.actions, task.horizon, task.num_actions)
        if isinstance(task, SampledTask):
            if len(episode.states) != task.horizon + 1:
                raise InvalidEpisode(f"states must have length {task.horizon + 1}, got {len(episode.states)}")
            if task.reading is not None:
                task.reading.refuse_foreign(episode.states)
            return episode.states, actions  # each state is checked when it is first seen, before anything is learned
        return _whole_numbers("states", episode.states, task.horizon + 1, task.num_states), actions


def as_reason(value: Any) -> str:
    """Words: nobody halts an agent, or lets it go on, without saying why."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"give a reason in words, got {value!r}")
    return value


def halt_of(reason: str) -> str:
    """Why the agent was halted when it gave a plan this reason; "" if it was not."""
    return reason.removeprefix(HALTED) if reason.startswith(HALTED) else ""


def unknown_signals(task: AnyTask) -> tuple[str, ...]:
    """Which of "reward" and "utility" the task does not tell."""
    return task.unknown if isinstance(task, SampledTask) else ()


def _refuse_what_is_no_task(task: Any) -> None:
    if not isinstance(task, AnyTask):
        hint = ": pass its .task" if hasattr(task, "task") else ""
        raise TypeError(f"an agent is built from an es.Task or es.SampledTask, got {type(task).__name__}{hint}")


def _as_json(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _from_json(text: str) -> dict[str, Any]:
    """What the settings were, for a message; nothing where they cannot be read."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _listed(name: str, value: Any, length: int) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidEpisode(f"{name} must have length {length}: {error}") from error
    if array.shape != (length,):
        raise InvalidEpisode(f"{name} must have length {length}, got shape {array.shape}")
    return array


def _whole_numbers(name: str, value: Any, length: int, below: int) -> IntArray:
    array = _listed(name, value, length)
    if array.dtype.kind not in "iu":
        raise InvalidEpisode(f"{name} must be whole numbers, got {array.dtype}")
    low, high = array.min(), array.max()
    if low < 0 or high >= below:
        raise InvalidEpisode(f"{name} must be in [0, {below}), got values from {low} to {high}")
    return array.astype(np.int64)
