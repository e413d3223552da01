"""Facts of a run, one row per episode. Regret and violation are derived from them, never stored."""

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from episafe.core.errors import DamagedLog
from episafe.core.files import write_atomically
from episafe.core.policy import Mixture, Policy
from episafe.core.types import INCUMBENT, SOURCES, Array, IntArray, Plan, Unit

EPISODES, MANIFEST = "episodes.npz", "record.json"
ROUNDING = 1e-9  # far above the float64 rounding of a value of order H, far below any violation that matters
BY_SOURCE = -1  # in `acting_numbers`: the name follows from the source and the plan of the episode
COLUMNS = ("reward_values", "utility_values", "sources", "lams", "bounds", "plan_ids")
OPTIONAL = ("reward_totals", "utility_totals", "optima", "components", "weights", "acting_numbers", "acting_utilities")
NUM_SAMPLES = 100  # times in a run at which `History` notes what is proved


class History(NamedTuple):
    """What a certifier had proved, and what it deployed, at some episodes of a run.

    Attributes:
        episodes: after how many episodes, (P,).
        names: the policies; the incumbent is the first.
        bounds: lower bounds, (P, n, m); NaN while a policy is not on trial. The incumbent's are assumed.
        weights: of the policies in the deployed plan, (P, n).
    """

    episodes: IntArray
    names: tuple[str, ...]
    bounds: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class Record:
    """The result of a simulation, with one entry per episode.

    Attributes:
        reward_values, utility_values: exact V^r(s₁), V^u(s₁) of the deployed policy, (K,); NaN if unknown.
            Utilities, bounds and utility totals are (K, m) for m > 1 limits.
        sources: the source of that policy, (K,) texts.
        lams: λ, (K,); NaN if there is none.
        bounds: the lower bound that was checked, (K,).
        plan_ids: which plan was deployed, (K,).
        optimum: the exact constrained optimum; NaN if it is unknown.
        threshold: b; (m,) for several limits.
        settings: the settings of the run, as plain values: environment, agent, constants, seed, versions, seconds.
        reward_totals, utility_totals: the observed totals of each episode, (K,); None if they were not recorded.
        optima: the optimum of each round, (K,), if it changes; `optimum` is then their mean. Else None.
        components: which component of a mixture acted, (K,); None if no plan is a mixture.
        weights: the weights of the mixture, (K, n); ones (K, 1) if no plan is a mixture.
        acting_numbers: the position of each acting policy in `acting_names`, (K,), −1 if it follows from the source.
        acting_names: names of the policies that acted.
        acting_utilities: exact expected utilities of the policies in `acting_names`, (n, m); NaN if unknown.
        constraint_names: names of the limits, in the order of columns; empty for one limit.
        history: what was proved and deployed at some episodes; None for agents without a certifier.
    """

    reward_values: Array
    utility_values: Array
    sources: NDArray[np.str_]
    lams: Array
    bounds: Array
    plan_ids: IntArray
    optimum: float
    threshold: float | Array
    settings: Mapping[str, Any] = field(default_factory=dict)
    reward_totals: Array | None = None
    utility_totals: Array | None = None
    optima: Array | None = None
    components: IntArray | None = None
    weights: Array = field(default_factory=lambda: np.ones((1, 1)))
    acting_numbers: NDArray[np.int32] | None = None
    acting_names: tuple[str, ...] = ()
    acting_utilities: Array | None = None
    constraint_names: tuple[str, ...] = ()
    history: History | None = None

    def __post_init__(self) -> None:
        if self.weights.shape[1] == 1:
            self.__dict__["weights"] = np.broadcast_to(1.0, (len(self.sources), 1))

    def __repr__(self) -> str:
        told = {name: self.settings[name] for name in ("env", "seed", "agent", "level") if name in self.settings}
        told |= {"episodes": len(self.sources), "threshold": np.asarray(self.threshold).tolist()}
        if self.is_exact and len(self.sources):
            told |= {"regret": float(self.regret()[-1]), "violation": float(np.sum(self.violation()[-1]))}
        return f"Record({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    @property
    def is_exact(self) -> bool:
        """Return whether every exact value is known; False for problems given by functions."""
        return bool(np.isfinite(self.utility_values).all() and np.isfinite(self.reward_values).all())

    @property
    def limit_names(self) -> tuple[str, ...]:
        """Return the names of the limits, (m,)."""
        return self.constraint_names or (str(self.settings.get("limit", "utility")),)

    def unit(self, name: str) -> Unit:
        """Return the unit of the reward ("reward") or of a limit, as the problem states it."""
        return Unit(*self.settings.get("units", {}).get(name, ()))

    @property
    def acting(self) -> NDArray[np.str_]:
        """Return the name of the policy that acted in each episode, (K,): "incumbent", "proposal-7", a given name."""
        numbered = np.char.add("proposal-", self.plan_ids.astype(np.str_))
        named = np.where(self.sources == "fixed", str(self.settings.get("agent", "fixed")), numbered)
        return self._by_name(self.acting_names, np.where(self.sources == "safe", INCUMBENT, named))

    def _by_name(self, values: ArrayLike, otherwise: NDArray[Any]) -> NDArray[Any]:
        """Return the value of the policy that acted in each episode; `otherwise` where that follows from the source."""
        if self.acting_numbers is None or not self.acting_names:
            return otherwise
        return np.where(self.acting_numbers < 0, otherwise, np.array(values)[np.maximum(self.acting_numbers, 0)])

    def regret(self) -> Array:
        """Return Σ_{i≤k} (optimum − V^r(π⁽ⁱ⁾)), signed, (K,)."""
        return np.cumsum((self.optimum if self.optima is None else self.optima) - self.reward_values)

    def violation(self) -> Array:
        """Return the hard violation Σ_{i≤k} max{b − V^u(π⁽ⁱ⁾), 0}, (K,); (K, m) for several limits."""
        return np.cumsum(self.violations(), axis=0)

    def violations(self) -> Array:
        """Return max{b − V^u(π⁽ᵏ⁾), 0} of each episode, (K,); (K, m) for several limits."""
        return np.maximum(self.threshold - self.utility_values, 0.0)

    def violating(self) -> NDArray[np.bool_]:
        """Return which episodes violate a limit beyond rounding, (K,); raise where exact values are unknown."""
        if not self.is_exact:
            raise ValueError("the exact values of this record are unknown: use utility_totals, which are samples")
        return self.violations().reshape(len(self.sources), -1).max(axis=1) > ROUNDING

    def acting_below(self) -> NDArray[np.bool_] | None:
        """Return whether the acting component itself is below a limit in each episode, (K,); None if unknown."""
        if not self.is_exact:
            return None
        alone = self.violating()
        if self.acting_utilities is None or not self.acting_names:
            return None if self.mixed().any() else alone
        worst = np.min(self.acting_utilities - np.atleast_1d(self.threshold), axis=1)  # NaN if unknown
        surplus = self._by_name(worst, np.where(alone, -1.0, 0.0))
        return None if np.isnan(surplus).any() else surplus < -ROUNDING

    def incumbent_acted(self) -> NDArray[np.bool_]:
        """Return whether the incumbent acted, alone or drawn from a mixture, in each episode, (K,)."""
        alone = ("safe", "fixed") if self.settings.get("agent") == INCUMBENT else ("safe",)
        return self._by_name([name == INCUMBENT for name in self.acting_names], np.isin(self.sources, alone))

    def mixed(self) -> NDArray[np.bool_]:
        """Return whether a mixture was deployed in each episode, (K,)."""
        return self.weights.max(axis=1) < 1.0

    def noting(self, **facts: object) -> "Record":
        """Return the same record with more facts in its settings."""
        return replace(self, settings={**self.settings, **facts})

    def plot(self, **options: object) -> Any:
        """Return a matplotlib figure of the run: values, bounds, and which policies acted."""
        return resolve_name("episafe.report.figures:run_figure")(self, **options)  # reports stand above records

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns that this record has, by name."""
        own = {name: self.__dict__[name] for name in COLUMNS + OPTIONAL}
        if self.weights.shape[1] == 1:
            own["weights"] = None
        return {name: column for name, column in own.items() if column is not None}

    def to_frame(self, library: str = "") -> Any:
        """Return a data frame with one row per episode.

        Args:
            library: "pandas", "polars" or "pyarrow"; the first that is installed by default, a dict of columns if none.

        Columns: episode (from 1), plan_id, source, acting, lam, reward_value, utility_value, bound and, where they were
        noted, reward_total and utility_total. Each of several limits has columns of its own.
        """
        table: dict[str, NDArray[Any]] = {
            "episode": np.arange(1, len(self.sources) + 1), "plan_id": self.plan_ids, "source": self.sources,
            "acting": self.acting, "lam": self.lams, "reward_value": self.reward_values,
            **self._by_limit("utility_value", self.utility_values), **self._by_limit("bound", self.bounds),
        }  # fmt: skip
        if self.reward_totals is not None and self.utility_totals is not None:
            table |= {"reward_total": self.reward_totals, **self._by_limit("utility_total", self.utility_totals)}
        from episafe.data.episodes import as_frame

        return as_frame(table, library)

    def _by_limit(self, name: str, values: Array) -> dict[str, Array]:
        if not self.constraint_names:
            return {name: values}
        return {f"{name}_{limit}": values[:, c] for c, limit in enumerate(self.constraint_names)}

    def save(self, folder: str | Path) -> None:
        """Write episodes.npz, then record.json, each atomically: a folder with record.json is complete."""
        folder, buffer, columns = Path(folder), io.BytesIO(), self.columns()
        if self.history is not None:
            columns |= {f"history_{name}": column for name, column in self.history._asdict().items() if name != "names"}
        np.savez_compressed(buffer, **columns)  # type: ignore[arg-type]
        manifest = {
            "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
            "optimum": None if math.isnan(self.optimum) else self.optimum,
            "threshold": np.asarray(self.threshold).tolist(),
            "acting_names": list(self.acting_names),
            "constraint_names": list(self.constraint_names),
            "history_names": None if self.history is None else list(self.history.names),
            "settings": dict(self.settings),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)  # files of two runs must not pass for one record
        write_atomically(folder / EPISODES, buffer.getvalue())
        write_atomically(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: str | Path) -> "Record":
        """Return the record that `save` wrote into `folder`; raise DamagedLog if it is incomplete or was changed."""
        folder = Path(folder)
        try:
            told = json.loads((folder / MANIFEST).read_text())
            content = (folder / EPISODES).read_bytes()
            if hashlib.sha256(content).hexdigest() != told["sha256"]:
                raise ValueError(f"{EPISODES} does not belong to {MANIFEST}")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                columns = {name: arrays[name] for name in arrays.files}
            threshold, history = np.asarray(told["threshold"], dtype=np.float64), None
            if told["history_names"] is not None:
                noted = [columns.pop(f"history_{name}") for name in ("episodes", "bounds", "weights")]
                history = History(noted[0], tuple(told["history_names"]), *noted[1:])
            return cls(
                **columns,
                optimum=math.nan if told["optimum"] is None else float(told["optimum"]),
                threshold=float(threshold) if threshold.ndim == 0 else threshold,
                settings=told["settings"],
                acting_names=tuple(told["acting_names"]),
                constraint_names=tuple(told["constraint_names"]),
                history=history,
            )
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise DamagedLog(f"{folder} does not hold a complete record ({error}): delete it and run again") from error


def window(K: int) -> int:
    """Return over how many episodes observed totals are averaged."""
    return max(min(100, K // 10), 1)


class Columns:
    """The columns of a run of K episodes, while it fills them.

    Attributes:
        values: V^r, then V^u of each limit, (K, 1 + m).
        bounds: λ, then the bound of each limit, (K, 1 + m).
        sources: positions in `core.types.SOURCES`, (K,) int8.
        plan_ids: (K,).
        components: which component acted, (K,); 0 if the plan is no mixture.
        weights: its weights, (K, n); (1, 0, …) if it is no mixture, and n = 0 until there is one.
        acting: the number of the acting policy's name, (K,) int32; BY_SOURCE where it follows from the source.
        totals: reward and utilities that each episode collected, (K, 1 + m); None if they were not requested.
        optima: the optimum of each round, (K,), if it changes; else None.
        names: numbers of the policies that acted, by name.
        utilities: exact expected utilities (m,) of those policies, by name, where they are known.
    """

    def __init__(self, num_episodes: int, num_constraints: int = 1, totals: bool = False, changing: bool = False):
        K, width = num_episodes, 1 + num_constraints
        self.num_episodes = K
        self.values, self.bounds = np.full((K, width), np.nan), np.empty((K, width))
        self.sources, self.plan_ids = np.empty(K, np.int8), np.empty(K, np.int64)
        self.components, self.weights = np.zeros(K, dtype=np.int64), np.zeros((K, 0))
        self.acting = np.full(K, BY_SOURCE, dtype=np.int32)
        self.totals = np.full((K, width), np.nan) if totals else None
        self.optima = np.full(K, np.nan) if changing else None
        self.names: dict[str, int] = {}
        self.utilities: dict[str, Array] = {}
        self._samples: list[tuple[int, dict[str, Array], dict[str, float]]] = []

    def note(
        self, k: int | IntArray, plan: Plan, values: tuple[float, float | Array], component: int, acting: Policy,
        utility: float | Array | None = None,
    ) -> None:  # fmt: skip
        """Note what is known before an episode, or before several: the plan, its exact values, which policy acts.

        `utility` is the exact utility of the acting component, where it is known.
        """
        self.values[k, 0], self.values[k, 1:] = values
        self.bounds[k, 0], self.bounds[k, 1:] = plan.lam, plan.bounds
        self.sources[k], self.plan_ids[k] = SOURCES.index(plan.source), plan.id
        if isinstance(plan.policy, Mixture):
            n = len(plan.policy.weights)
            self.widen(n)
            self.components[k], self.weights[k, :n], self.weights[k, n:] = component, plan.policy.weights, 0.0
            self.acting[k] = self.number(plan.policy.names[component], utility)
        elif self.weights.shape[1] > 0:
            self.acting[k] = self.number(acting.name, values[1])

    def number(self, name: str, utility: float | Array | None = None) -> int:
        """Return the number of a name, BY_SOURCE for no name; `utility` is what its policy has exactly, (m,)."""
        if name and utility is not None and name not in self.utilities:
            self.utilities[name] = np.atleast_1d(utility)
        return self.names.setdefault(name, len(self.names)) if name else BY_SOURCE

    def sample(self, k: int, bounds: Mapping[str, Array], plan: Plan) -> None:
        """Note what is proved of each policy after k episodes, and the plan that was deployed last."""
        weights = dict(zip(plan.parts.names, plan.parts.weights.tolist(), strict=True))
        self._samples.append((k, {name: bound.copy() for name, bound in bounds.items()}, weights))

    def _history(self, m: int) -> History | None:
        if not self._samples:
            return None
        named = dict.fromkeys(name for _, bounds, weights in self._samples for name in (*bounds, *weights))
        names = tuple(sorted(named, key=lambda name: name != INCUMBENT))
        bounds = np.full((len(self._samples), len(names), m), np.nan)
        for i, (_, proved, _) in enumerate(self._samples):
            for name, bound in proved.items():
                bounds[i, names.index(name)] = bound
        weights = np.array([[deployed.get(name, 0.0) for name in names] for _, _, deployed in self._samples])
        return History(np.array([k for k, _, _ in self._samples]), names, bounds, weights)

    def widen(self, n: int) -> None:
        """Make space for the weights of n components."""
        known = self.weights if self.weights.shape[1] > 0 else np.ones((self.num_episodes, 1))
        if n > self.weights.shape[1]:
            self.weights = np.pad(known, ((0, 0), (0, max(n, 2) - known.shape[1])))

    def record(
        self, optimum: float, thresholds: Array, settings: Mapping[str, Any], names: Sequence[str] = ()
    ) -> Record:
        """Return what was filled as a record; `names` are those of the limits."""
        totals, optima, mixed = self.totals, self.optima, self.weights.shape[1] > 0
        several, unknown = len(thresholds) > 1, np.full(len(thresholds), np.nan)
        if totals is not None and np.isnan(totals).any():
            totals = None  # a compiled loop does not note them
        return Record(
            self.values[:, 0].copy(), _utilities(self.values), np.array(SOURCES)[self.sources],
            self.bounds[:, 0].copy(), _utilities(self.bounds), self.plan_ids,
            optimum if optima is None else float(optima.mean()),
            thresholds if several else float(thresholds[0]),
            settings,
            reward_totals=None if totals is None else totals[:, 0].copy(),
            utility_totals=None if totals is None else _utilities(totals),
            optima=optima,
            components=self.components if mixed else None,
            weights=self.weights if mixed else np.ones((1, 1)),
            acting_numbers=self.acting if mixed else None,
            acting_names=tuple(self.names),
            acting_utilities=np.array([self.utilities.get(n, unknown) for n in self.names]) if self.utilities else None,
            constraint_names=tuple(names) if several else (),
            history=self._history(len(thresholds)),
        )  # fmt: skip


def _utilities(both: Array) -> Array:
    """Return all columns but the first; (K,) where that is one."""
    return (both[:, 1] if both.shape[1] == 2 else both[:, 1:]).copy()
