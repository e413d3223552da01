"""The interface of every bandit learner: plan, learn; state, restore; save."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np

from episafe.agents.base import FAILED, HALTED, as_reason, halt_of
from episafe.checks import TOLERANCE, as_distributions, as_finite, within_unit_norm
from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.kernels.bandit_regression import Regression, absorb_all, blank
from episafe.learning.bandit_radius import radius as radius_of
from episafe.learning.constants import Level
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_identity import digests
from episafe.problems.bandit_policy import Mixture, over_arms
from episafe.problems.bandit_task import BanditTask
from episafe.storage.atomic_files import read_arrays, write_arrays
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array

VERSION = 1  # of the names and meanings of the entries of a state
Source = Literal["safe", "search"]


@dataclass(frozen=True, eq=False)
class BanditPlan:
    """A policy to deploy and why it may be.

    Attributes:
        atoms, probabilities: (m, d) and (m,): what to play, with which probability.
            They are copied and cannot be written to.
        source: "safe" (the incumbent) or "search".
        lam: the multiplier of the constraint; NaN where there is none.
        utility_bound: for "search" the bound that was checked against the threshold; for "safe" the incumbent's own.
        level: what the bound is worth: "theorem", "calibrated" or "heuristic".
        reason: why no searched policy is deployed, where none is.
        id: counts the plans of one agent from 0.
    """

    atoms: Array
    probabilities: Array
    source: Source
    lam: float = np.nan
    utility_bound: float = np.nan
    level: Level = "heuristic"
    reason: str = ""
    id: int = 0

    def __post_init__(self) -> None:
        for name in ("atoms", "probabilities"):
            copied = np.array(getattr(self, name), dtype=np.float64, order="C")
            copied.setflags(write=False)  # the agent deploys it again: nobody may change it meanwhile
            object.__setattr__(self, name, copied)

    def draw(self, rng: np.random.Generator) -> Array:
        """An action to play, (d,)."""
        return Mixture(self.atoms, self.probabilities).draw(rng)


class BanditAgent(ABC):
    """Plans, and learns from observations in any order and number. Subclasses say what to propose.

    Any failure inside a certified agent's planning deploys the incumbent, with the reason in the plan.
    """

    name: ClassVar[str]
    certified: ClassVar[bool]  # whether every plan is the incumbent or passed the check
    told: ClassVar[str] = ""  # what it is told beyond the task
    assumes: ClassVar[str] = ""  # what its level needs to be true beyond noise, norm bound and a safe incumbent

    def __init__(
        self,
        task: BanditTask,
        *,
        num_rounds: int | None = None,
        delta: float = 0.05,
        radius: Any = "paper",
        replan: Replanning = Every(),
        label: str = "",
    ) -> None:
        refuse_what_is_no_task(task)
        if isinstance(replan, type) or not hasattr(replan, "due"):
            raise TypeError(f"replan must be a rule such as es.Every() or es.Doubling(0.3), got {replan!r}")
        self.task, self.replan, self.delta, self.label = task, replan, delta, label or self.name
        self.radius, proved = radius_of(radius, task, num_rounds, delta)
        self.level: Level = proved if self.certified else "heuristic"
        self._said: dict[str, str | int | float] = {
            "radius": str(radius),
            "planned_rounds": 0 if num_rounds is None else int(num_rounds),
            "delta": float(delta),
        }
        self.model: Regression = blank(task.dim)
        self.halted = ""  # why exploration was stopped; "" while it goes on
        self.failed = ""  # why planning is known to fail, where it is made again: it is then not tried
        self._plan: BanditPlan | None = None
        self._round, self._count_then = -1, -1  # that the plan in force was made for, and from how many observations
        self.information_then: Array = np.zeros(1)

    def plan(self, round: int | None = None) -> BanditPlan:
        """The plan for the next round: the last one, unless it is time for a new one. Deterministic.

        Args:
            round: k, counted from 0, where the arms change with the round; by default the number of observations,
                which is k unless feedback is late.
        """
        k = self.num_observations if round is None else as_round(round)
        last = self._plan
        if last is not None and not self._is_due(k):
            return last
        made = replace(self._attempt(k), id=0 if last is None else last.id + 1)
        self.adopt(made, k, self.num_observations, self.model.log_det)
        return made

    def learn(self, action: Any, reward: Any, utility: Any) -> None:
        """Take in one observation, or a batch: actions (m, d), rewards (m,), utilities (m,), of whatever policies.

        Late and in any order is fine, as long as what comes, and when, does not depend on the noise in it.
        """
        rewards, utilities = (np.atleast_1d(_observed(*pair)) for pair in (("reward", reward), ("utility", utility)))
        try:
            actions = as_finite("action", np.atleast_2d(np.asarray(action)), (len(rewards), self.task.dim))
            within_unit_norm("action", actions, getattr(self.task.actions, "tolerance", TOLERANCE))
        except InvalidProblem as error:
            raise InvalidEpisode(str(error)) from error
        if rewards.shape != utilities.shape or rewards.ndim != 1:
            raise InvalidEpisode(f"as many rewards as utilities, one an action: got {rewards.shape}, {utilities.shape}")
        absorb_all(self.model, actions, rewards, utilities)

    def halt(self, reason: str) -> None:
        """Stop exploring: from now on every plan is the incumbent, with this reason. Learning goes on."""
        self.halted = as_reason(reason)

    def resume_exploring(self) -> None:
        """Plan again as if never halted. Nothing in episafe calls this: it is for a person who knows why."""
        self.halted = ""

    @property
    def num_observations(self) -> int:
        """How many observations were learned from."""
        return int(self.model.seen[0])

    @property
    def is_used(self) -> bool:
        """Whether it has planned or learned anything."""
        return self._plan is not None or self.num_observations > 0

    @property
    def is_stored(self) -> bool:
        """Whether `state` is known to hold all of it: so for the agents of this package, not for those of others."""
        return type(self).__module__.startswith("episafe.bandits.agents.")

    @property
    def last_id(self) -> int:
        """Of the plan in force; −1 before the first."""
        return -1 if self._plan is None else self._plan.id

    @property
    def made_at(self) -> tuple[int, int]:
        """The round that the plan in force was made for, and the number of observations it was made from."""
        return self._round, self._count_then

    def adopt(self, plan: BanditPlan | None, round: int, count_then: int, information_then: Array) -> None:
        """Put a plan in force; also one that a compiled loop made for this agent, and that was learned from since."""
        self._plan, self._round, self.information_then = plan, round, information_then.copy()
        self._count_then = count_then

    def recent_plans(self) -> list[BanditPlan]:
        """The plan in force."""
        return [] if self._plan is None else [self._plan]

    def save(self, path: str | Path) -> None:
        """Write the `state` to one .npz file, atomically, without pickle."""
        write_arrays(Path(path), self.state(), {})

    def state(self) -> State:
        """All that was learned and the plan in force, as named arrays: plain numbers and text, copied."""
        said = {"version": VERSION, "fingerprint": self.fingerprint(), "settings": _as_json(self._identity())}
        then = {"round": self._round, "count_then": self._count_then, "information_then": self.information_then,
                "halted": self.halted}  # fmt: skip
        made = {} if self._plan is None else under("plan", asdict(self._plan))
        return under("agent", {**said, **then}) | under("model", self.model._asdict()) | made

    def restore(self, state: Mapping[str, Any] | str | Path) -> None:
        """Go on, bit for bit, from what `state` gave or `save` wrote.

        The agent must have been built alike, for the same task: else a ValueError; what is damaged is a DamagedFile.
        The agent is then unchanged.
        """
        place = "the state" if isinstance(state, Mapping) else f"{state}"
        saved = Saved(state if isinstance(state, Mapping) else read_arrays(Path(state))[0])
        agent, model = saved.under("agent"), saved.under("model")
        self._refuse_others(agent, place)
        d = self.task.dim
        read = Regression(
            model.numbers("gram", (d, d)),
            model.numbers("gram_inv", (d, d)),
            model.numbers("sums", (2, d)),
            model.numbers("log_det", (1,), least=0),
            model.wholes("seen", (1,), 0, 2**62),
        )
        for name in ("gram", "gram_inv"):
            if not np.linalg.eigvalsh(getattr(read, name))[0] > 0:
                model.refuse(name, "is not positive definite")
        round, count_then = agent.whole("round", -1), agent.whole("count_then", -1, int(read.seen[0]) + 1)
        information_then = agent.numbers("information_then", (1,))
        halted = agent.text("halted")
        plan = _plan_of(saved, d) if saved.has("plan") else None
        saved.end()
        self.adopt(plan, round, count_then, information_then)
        self.halted = halted
        for array, found in zip(self.model, read, strict=True):
            array[...] = found

    def fingerprint(self) -> str:
        """SHA-256 over the settings and what the task tells."""
        return hashlib.sha256(_as_json([type(self).__name__, self._identity()]).encode()).hexdigest()

    def _refuse_others(self, saved: Saved, place: str) -> None:
        version = saved.whole("version", 1)
        if version > VERSION:
            saved.refuse("version", f"is {version}, and this episafe knows {VERSION}: update it")
        said, ours = saved.text("settings"), self._identity()
        if saved.text("fingerprint") != self.fingerprint():
            try:
                theirs = json.loads(said)
                differing = [key for key, value in ours.items() if theirs.get(key) != value]
            except (ValueError, AttributeError, RecursionError):
                differing = ["settings"]
            names = ", ".join(differing) or "the kind of agent"
            raise ValueError(f"{place} was saved by another agent: {names} differ; build it as it was")

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a saved state to make sense."""
        task = self.task
        return {**self.settings(), **digests(task), "dim": task.dim, "threshold": task.threshold}

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say of this agent, as plain values."""
        task = self.task
        told: dict[str, str | int | float] = {
            "slack": "unknown" if task.slack is None else task.slack,
            "noise": task.noise,
            "norm_bound": task.norm_bound,
            "told_besides": self.told,
        }
        return {
            "agent": self.label,
            "replan": repr(Every() if self.task.changes else self.replan),
            "level": self.level,
            "level_assumes": self.assumes,
            **self._said,
            **told,
        }

    def _is_due(self, round: int) -> bool:
        if self._plan is not None and halt_of(self._plan.reason) != self.halted:
            return True
        if self.halted:
            return self.task.changes and round != self._round
        learned = self.num_observations != self._count_then
        if self.task.changes:
            return learned or round != self._round
        return learned and self.replan.due(self.information_then, self.model.log_det)

    def _attempt(self, round: int) -> BanditPlan:
        if self.halted:
            return self._incumbent(round, HALTED + self.halted)
        if self.failed:
            return self._incumbent(round, self.failed)
        if not self.certified:
            return self._propose(round)
        try:
            return self._propose(round)
        except Exception as error:  # the last resort: whatever went wrong, the incumbent is safe
            return self._incumbent(round, f"{FAILED}{type(error).__name__}: {error}")

    def _incumbent(self, round: int, reason: str, utility_bound: float = np.nan) -> BanditPlan:
        incumbent = self.task.incumbent(round)
        finite = self.task.is_finite
        mixture = over_arms(self.task.arms(round), incumbent) if finite else Mixture(incumbent[None, :], np.ones(1))
        return BanditPlan(mixture.atoms, mixture.probabilities, "safe", utility_bound=utility_bound, level=self.level,
                          reason=reason)  # fmt: skip

    def safe_plan(self, round: int, reason: str) -> BanditPlan:
        """The incumbent of a round, and why it is deployed."""
        return self._incumbent(round, reason)

    @abstractmethod
    def _propose(self, round: int) -> BanditPlan:
        """A plan from all that was learned."""


def refuse_what_is_no_task(task: Any) -> None:
    """An error that says what to pass in its place."""
    if not isinstance(task, BanditTask):
        hint = ": pass its .task" if hasattr(task, "task") else ""
        raise TypeError(f"a bandit agent is built from a BanditTask, got {type(task).__name__}{hint}")


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _plan_of(saved: Saved, dim: int) -> BanditPlan:
    """The plan in force, as `state` wrote it."""
    saved = saved.under("plan")
    m = saved.width("probabilities")
    source, level = saved.text("source"), saved.text("level")
    if source not in get_args(Source) or level not in ("", *get_args(Level)):
        saved.refuse("source", f"or level is unknown: {source!r}, {level!r}")
    atoms, probabilities = saved.numbers("atoms", (m, dim)), saved.numbers("probabilities", (m,))
    try:
        as_distributions("probabilities", probabilities, (m,))
    except InvalidProblem as error:
        saved.refuse("probabilities", f"are none ({error})")
    return BanditPlan(
        atoms,
        probabilities,
        cast(Source, source),
        saved.number("lam", nan=True, inf=True),
        saved.number("utility_bound", nan=True, inf=True),
        cast(Level, level),
        saved.text("reason"),
        saved.whole("id"),
    )


def as_round(value: Any) -> int:
    """k, a whole number ≥ 0."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"round must be a whole number >= 0, got {value!r}: rounds are counted from 0")
    return int(value)


def _observed(name: str, value: Any) -> Array:
    found = np.asarray(value)
    if found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise InvalidEpisode(f"{name} must be finite numbers, got {value!r}: leave out what was not seen")
    return found.astype(np.float64)
