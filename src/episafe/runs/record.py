"""Facts of a run, one row an episode. Regret and violation are derived from them, never stored."""

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.problems.short_repr import short_repr
from episafe.runs.columns import BY_SOURCE, Coins, Facts
from episafe.stats import normal_interval
from episafe.storage.atomic_files import read_arrays, sealed_bytes, write_bytes
from episafe.storage.regular_files import read_regular
from episafe.storage.toml_settings import to_toml
from episafe.types import SOURCES, Amount, Array, IntArray, amount, amounts

EPISODES, SETTINGS = "episodes.npz", "run.toml"
SEALED = "settings_sha256"
ROUNDING = 1e-9  # far above the float64 rounding of a value of order H, far below any violation that matters
COLUMNS = ("reward_values", "utility_values", "sources", "lams", "utility_bounds", "plan_ids")
OPTIONAL = ("reward_totals", "utility_totals", "optima", "components", "weights", "acting_numbers")
UTILITIES = ("utility_values", "utility_bounds", "utility_totals")  # with an axis for several constraints
WHOLE = ("plan_ids", "components", "acting_numbers")
KINDS = dict.fromkeys(COLUMNS + OPTIONAL, "f") | dict.fromkeys(WHOLE, "iu") | {"sources": "U"}
LARGEST_SETTINGS = 1 << 20  # bytes of run.toml


@dataclass(frozen=True, eq=False)
class Record:
    """What happened, episode by episode.

    Attributes:
        reward_values, utility_values: exact V^r(s₁), V^u(s₁) of the policy deployed, (K,); NaN where unknown.
            Utilities, their bounds and totals are (K, m) where there are m > 1 constraints.
        sources: where that policy came from, (K,) strings.
        lams: λ, NaN where there is none, (K,).
        utility_bounds: the bound that was checked, (K,).
        plan_ids: which plan was deployed, (K,); it changes when the agent planned anew.
        optimum: the exact constrained optimum; NaN where it cannot be known.
        threshold: b; (m,) of several.
        settings: how the run was made, as plain values: environment, agent, constants, seed, versions, seconds.
        reward_totals, utility_totals: what was collected in each episode, (K,): one sample of V^r, V^u each. Kept where
            exact values cannot be known, else None.
        optima: the optimum of each episode, (K,), where it changes; `optimum` is then their mean. Else None.
        components: which policy of a mixture acted, drawn before the episode, (K,); None where no plan is a mixture.
        weights: the weights of the mixture, (K, n); (1, 0, …) for a policy alone, and ones (K, 1), which take no room
            and are not stored, where no plan is a mixture. The values above are the mixture's.
        acting_numbers: the place of each name of `acting` in `acting_names`, (K,), −1 where it follows from the source;
            None where all do.
        acting_names: of the policies that acted.
        constraint_names: of several constraints, in the order of columns; empty where there is one.
    """

    reward_values: Array
    utility_values: Array
    sources: NDArray[np.str_]
    lams: Array
    utility_bounds: Array
    plan_ids: IntArray
    optimum: float
    threshold: Amount
    settings: Mapping[str, str | int | float] = field(default_factory=dict)
    reward_totals: Array | None = None
    utility_totals: Array | None = None
    optima: Array | None = None
    components: IntArray | None = None
    weights: Array = field(default_factory=lambda: np.ones((1, 1)))
    acting_numbers: NDArray[np.integer[Any]] | None = None
    acting_names: tuple[str, ...] = ()
    constraint_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.weights.shape[1] == 1:
            object.__setattr__(self, "weights", np.broadcast_to(1.0, (len(self.sources), 1)))

    @property
    def acting(self) -> NDArray[np.str_]:
        """The name of what acted in each episode, (K,): "incumbent", "proposal-7", the name of a fixed policy."""
        numbered = np.char.add("proposal-", self.plan_ids.astype(np.str_))
        named = np.where(self.sources == "fixed", str(self.settings.get("agent", "fixed")), numbered)
        return self._by_name(self.acting_names, np.where(self.sources == "safe", "incumbent", named))

    def _by_name(self, values: Sequence[Any], otherwise: NDArray[Any]) -> NDArray[Any]:
        """Of each episode the value of the name that acted, one for each of `acting_names`; else `otherwise`, (K,)."""
        if self.acting_numbers is None or not self.acting_names:
            return otherwise
        return np.where(self.acting_numbers < 0, otherwise, np.array(values)[np.maximum(self.acting_numbers, 0)])

    def __repr__(self) -> str:
        said = {name: self.settings.get(name) for name in ("env", "variant", "seed", "agent", "level")}
        b = self.threshold if np.ndim(self.threshold) == 0 else amounts(self.threshold).tolist()
        return short_repr(self, {**said, "episodes": len(self.sources), "threshold": b, **self._finals()})

    def _finals(self) -> dict[str, float]:
        if not self.is_exact or not len(self.sources):
            return {}
        return {"regret": float(self.regret()[-1]), "violation": float(np.sum(self.violation()[-1]))}

    def regret(self) -> Array:
        """Σ_{i≤k} (optimum − V^r(π⁽ⁱ⁾)), signed, (K,)."""
        return np.cumsum((self.optimum if self.optima is None else self.optima) - self.reward_values)

    def columns(self) -> tuple[str, ...]:
        """Names of the columns that this record has."""
        left_out = ("weights",) if self.weights.shape[1] == 1 else ()
        return COLUMNS + tuple(name for name in OPTIONAL if getattr(self, name) is not None and name not in left_out)

    def violation(self) -> Array:
        """Hard violation Σ_{i≤k} max{b − V^u(π⁽ⁱ⁾), 0}, (K,); (K, m) of several constraints."""
        return np.cumsum(self.violations(), axis=0)

    def violations(self) -> Array:
        """max{b − V^u(π⁽ᵏ⁾), 0} of each episode, (K,); (K, m) of several constraints."""
        return np.maximum(self.threshold - self.utility_values, 0.0)

    def violating(self) -> NDArray[np.bool_]:
        """Which episodes violate a constraint beyond rounding, (K,); an error where exact values are not known."""
        if not self.is_exact:
            raise ValueError("the exact values of this record are not known, so nobody can say which episodes violate")
        below = self.violations() > ROUNDING
        return below if below.ndim == 1 else np.logical_or.reduce(below, axis=1)

    @property
    def is_exact(self) -> bool:
        """Whether every exact value is known: not so for problems given by functions."""
        return bool(np.isfinite(self.utility_values).all() and np.isfinite(self.reward_values).all())

    def cancelling_violation(self) -> Array:
        """max{Σ_{i≤k} (b − V^u(π⁽ⁱ⁾)), 0}: safe episodes pay for unsafe ones, (K,); (K, m) of several constraints."""
        return np.maximum(np.cumsum(self.threshold - self.utility_values, axis=0), 0.0)

    def safe_deployments(self) -> IntArray:
        """How often the incumbent was deployed up to each episode, (K,)."""
        return np.cumsum(self.sources == "safe", dtype=np.int64)

    def incumbent_acted(self) -> NDArray[np.bool_]:
        """Whether the incumbent acted, alone or drawn from a mixture, in each episode, (K,)."""
        alone = ("safe", "fixed") if self.settings.get("agent") == "incumbent" else ("safe",)
        return self._by_name([name == "incumbent" for name in self.acting_names], np.isin(self.sources, alone))

    def mixed(self) -> NDArray[np.bool_]:
        """Whether a mixture was deployed, of which a coin drew who acted, in each episode, (K,)."""
        return self.weights.max(axis=1) < 1.0

    def plot(self, learned: Any = None, incumbent: Any = None) -> Any:
        """What came of it, why it was allowed, who acted: a matplotlib figure, which a notebook shows.

        Args:
            learned, incumbent: policies with a table, to draw too where they differ, as `agent.plan().policy` and
                `task.safe_policy`.
        """
        run_figure = resolve_name("episafe.reports.paper_figures:run_figure")  # it stands above records
        return run_figure(self, learned, incumbent)

    def of_constraint(self, c: int) -> "Record":
        """The same run as if constraint c were the only one: for whoever draws or sums up one at a time."""
        if not self.constraint_names:
            return self
        own = {name: getattr(self, name) for name in UTILITIES if getattr(self, name) is not None}
        cut = {name: column[:, c].copy() for name, column in own.items()}
        said = {**self.settings, "constraint": self.constraint_names[c]}
        threshold = float(amounts(self.threshold)[c])
        return replace(self, **cut, threshold=threshold, constraint_names=(), settings=said)

    def observed(self, last: int) -> tuple[tuple[float, float], tuple[Any, Any]]:
        """Mean and 95 % half-width of the rewards, then of the utilities, collected in the last `last` episodes.

        An estimate from samples of possibly different policies, for problems without exact values; nothing certified.
        """
        if self.reward_totals is None or self.utility_totals is None:
            raise ValueError("this record has exact values: use reward_values and utility_values")
        reward, utility = (normal_interval(totals[-last:]) for totals in (self.reward_totals, self.utility_totals))
        mean, half_width = (amount(np.atleast_1d(number)) for number in utility)
        return (float(reward[0]), float(reward[1])), (mean, half_width)

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row an episode: what a plotting library or another language reads.

        Columns: episode (from 1), plan_id, source, acting, lam, reward_value, utility_value, utility_bound and, where
        only they are known, reward_total and utility_total. Of several constraints each has columns of its own.

        Example:
            >>> record.to_frame().to_parquet("run.parquet")  # doctest: +SKIP
        """
        from episafe.runs.data_frames import to_frame  # it reads records

        return to_frame(self)

    def noting(self, **facts: str | int | float) -> "Record":
        """The same record with more said in its settings."""
        return replace(self, settings={**self.settings, **facts})

    def save(self, folder: str | Path) -> None:
        """Write episodes.npz, then run.toml, each atomically: a folder with run.toml is complete."""
        save_files(self.files(), Path(folder))

    def files(self) -> dict[str, bytes]:
        """The bytes of episodes.npz and run.toml. The first, which is sealed, has the hash of the second: neither goes
        with that of another run.
        """
        text = to_toml(self.settings).encode()
        facts = {"optimum": float(self.optimum), "threshold": np.asarray(self.threshold).tolist(),
                 SEALED: _hash(text), "acting_names": list(self.acting_names)}  # fmt: skip
        if self.constraint_names:
            facts["constraint_names"] = list(self.constraint_names)
        columns = {name: getattr(self, name) for name in self.columns()}
        return {EPISODES: sealed_bytes(columns, facts), SETTINGS: text}

    @classmethod
    def load(cls, folder: str | Path) -> "Record":
        """The record that `save` wrote into `folder`."""
        folder = Path(folder)
        try:
            arrays, facts = read_arrays(folder / EPISODES, {*COLUMNS, *OPTIONAL})
            columns = [name for name in COLUMNS + OPTIONAL if name in COLUMNS or name in arrays]
            if len({len(arrays[name]) for name in columns}) != 1:
                raise ValueError("its columns differ in length")
            b, names = np.asarray(facts["threshold"], dtype=np.float64), facts.get("constraint_names", [])
            if b.shape != ((len(names),) if names else ()) or len(names) == 1:
                raise ValueError(f"its threshold has shape {b.shape}, and there are {len(names) or 1} constraints")
            two = ("weights", *UTILITIES) if names else ("weights",)
            for name in columns:
                if arrays[name].ndim != (2 if name in two else 1) or arrays[name].dtype.kind not in KINDS[name]:
                    raise ValueError(f"its column {name} has type {arrays[name].dtype}, shape {arrays[name].shape}")
            said = _settings_bytes(folder)
            if _hash(said) != facts[SEALED]:
                raise ValueError(f"{SETTINGS} was changed, or is of another run than {EPISODES}")
            return cls(
                **{name: arrays[name] for name in columns},
                optimum=float(facts["optimum"]),
                threshold=amount(np.atleast_1d(b)),
                constraint_names=tuple(map(str, names)),
                settings=tomllib.loads(said.decode()),
                acting_names=_names(facts.get("acting_names", []), arrays.get("acting_numbers")),
            )
        except DamagedFile:
            raise
        except (KeyError, OSError, TypeError, ValueError, RecursionError) as error:
            raise DamagedFile(
                f"{folder} does not hold a whole record ({type(error).__name__}: {error}): delete it and run again"
            ) from error


def save_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a record, run.toml last and none beside that of an older one."""
    (folder / SETTINGS).unlink(missing_ok=True)  # two halves must never pass for a whole
    for name in (EPISODES, SETTINGS):
        write_bytes(folder / name, files[name])


def _names(said: Any, numbers: Any) -> tuple[str, ...]:
    """The names of what acted; every number must have one."""
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        raise ValueError("the names of what acted are none")
    if numbers is not None and len(numbers) and not numbers.max() < len(said):
        raise ValueError("something acted that has no name")
    return tuple(said)


def load_settings(folder: Path) -> dict[str, Any]:
    """How the run behind a record was made, without its columns."""
    try:
        return tomllib.loads(_settings_bytes(folder).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{folder} does not hold a whole record ({error}): delete it and run again") from error


def finished_length(folder: Path) -> int:
    """How many episodes or rounds the record in `folder` says it has; 0 where there is none that can be read."""
    try:
        said = load_settings(folder) if is_complete(folder) else {}
    except DamagedFile:
        return 0
    length = said.get("num_episodes", said.get("num_rounds"))
    return length if type(length) is int else 0


def _settings_bytes(folder: Path) -> bytes:
    return read_regular(folder / SETTINGS, LARGEST_SETTINGS, "delete it and run again")


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a finished record; run.toml is written last."""
    return (folder / SETTINGS).is_file() and (folder / EPISODES).is_file()


class Columns:
    """All columns of a run of K episodes, while it fills them.

    Attributes:
        facts: of every run.
        coins: of agents that may deploy mixtures, else None.
        totals: (K, 1 + m) reward and utility collected, where exact values cannot be known, else None.
        optima: (K,) the optimum of each episode, where it changes, else None.
        names: the numbers of the policies that acted, by their names.
        halts: the episodes after which monitors halted the agent, and why.
        failed: in how many episodes the incumbent acted because planning had failed, and the first reason.
    """

    def __init__(
        self, num_episodes: int, *, totals: bool, changing: bool, mixes: bool, num_constraints: int = 1
    ) -> None:
        K, width = num_episodes, 1 + num_constraints
        self.num_episodes = K
        sources, plan_ids = np.empty(K, dtype=np.int8), np.empty(K, dtype=np.int64)
        self.facts = Facts(np.empty((K, width)), np.empty((K, width)), sources, plan_ids)
        self.coins = _no_coins(K) if mixes else None
        self.totals = np.empty((K, width)) if totals else None
        self.optima = np.full(K, np.nan) if changing else None
        self.names: dict[str, int] = {}
        self.halts: dict[int, str] = {}
        self.failed = (0, "")

    def record(
        self, optimum: float, threshold: Amount, settings: Mapping[str, str | int | float], names: tuple[str, ...] = ()
    ) -> "Record":
        """What was filled, as a record; utilities are (K,), or (K, m) where there are several.

        Args:
            optimum: the exact constrained optimum; where it changes, that of each episode counts.
            threshold: b; (m,) of several.
            settings: how the run was made.
            names: of several constraints.
        """
        facts, totals, optima, coins = self.facts, self.totals, self.optima, self.coins
        return Record(
            facts.values[:, 0].copy(),
            _utilities(facts.values).copy(),
            np.array(SOURCES)[facts.sources],
            facts.bounds[:, 0].copy(),
            _utilities(facts.bounds).copy(),
            facts.plan_ids,
            optimum if optima is None else float(optima.mean()),
            threshold,
            settings,
            reward_totals=None if totals is None else totals[:, 0].copy(),
            utility_totals=None if totals is None else _utilities(totals).copy(),
            optima=optima,
            components=None if coins is None else coins.components,
            weights=np.ones((1, 1)) if coins is None else coins.weights,
            acting_numbers=None if coins is None else coins.acting,
            acting_names=tuple(self.names),
            constraint_names=names,
        )

    def others(self) -> dict[str, Array]:
        """The columns that only some runs have, by name."""
        columns = {"totals": self.totals, "optima": self.optima}
        return {name: column for name, column in columns.items() if column is not None}

    def fail(self, num_episodes: int, reason: str) -> None:
        """Note that planning had failed before so many episodes."""
        self.failed = (self.failed[0] + num_episodes, self.failed[1] or reason)

    def note(self, at: Any, plan: Any, values: tuple[float, Any], drawn: tuple[int | None, Any]) -> None:
        """The facts of an episode, or of several `at` once, that are known before: the plan, its values, who acts."""
        facts, (component, acting) = self.facts, drawn
        facts.values[at, 0], facts.values[at, 1:] = values
        facts.bounds[at, 0], facts.bounds[at, 1:] = plan.lam, plan.utility_bound
        facts.sources[at], facts.plan_ids[at] = SOURCES.index(plan.source), plan.id
        if getattr(plan, "failed", False):
            self.fail(np.size(at), plan.reason)
        if component is not None:
            self.widen(len(plan.policy.weights))
            assert self.coins is not None
            weights, n = self.coins.weights, len(plan.policy.weights)
            self.coins.components[at], weights[at, :n], weights[at, n:] = component, plan.policy.weights, 0.0
        if self.coins is not None:
            self.coins.acting[at] = self.number(getattr(acting, "name", ""))

    def number(self, name: str) -> int:
        """The number of a name; of none, that it follows from the source."""
        return self.names.setdefault(name, len(self.names)) if name else BY_SOURCE

    def widen(self, n: int) -> None:
        """Make room for mixtures of n policies, where there is none."""
        if self.coins is not None and n <= self.coins.weights.shape[1]:
            return
        old, K = self.coins or _no_coins(self.num_episodes), self.num_episodes
        weights = np.zeros((K, max(n, 2)))
        weights[:, : old.weights.shape[1]] = old.weights
        self.coins = Coins(old.components, weights, old.acting)


def _utilities(both: Array) -> Array:
    """All columns but the first; as (K,) where that is one."""
    return both[:, 1] if both.shape[1] == 2 else both[:, 1:]


def _no_coins(num_episodes: int) -> Coins:
    """Room for a run, as if no plan were a mixture."""
    weights = np.zeros((num_episodes, 2))
    weights[:, 0] = 1.0
    acting = np.full(num_episodes, BY_SOURCE, dtype=np.int32)
    return Coins(np.zeros(num_episodes, dtype=np.int64), weights, acting)
