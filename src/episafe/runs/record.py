"""Facts of a run, one row an episode. Regret and violation are derived from them, never stored."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.storage.atomic_files import read_arrays, write_arrays, write_text
from episafe.storage.toml_settings import to_toml
from episafe.types import Array, IntArray

EPISODES, SETTINGS = "episodes.npz", "run.toml"
SEALED = "settings_sha256"
ROUNDING = 1e-9  # far above the float64 rounding of a value of order H, far below any violation that matters
COLUMNS = ("reward_values", "utility_values", "sources", "lams", "utility_bounds", "plan_ids")
OPTIONAL = ("reward_totals", "utility_totals", "optima", "components", "weights")
KINDS = dict.fromkeys(COLUMNS + OPTIONAL, "f") | {"sources": "U", "plan_ids": "iu", "components": "iu"}
LARGEST_SETTINGS = 1 << 20  # bytes of run.toml


@dataclass(frozen=True, eq=False)
class Record:
    """What happened, episode by episode.

    Attributes:
        reward_values, utility_values: exact V^r(s₁), V^u(s₁) of the policy deployed, (K,); NaN where unknown.
        sources: where that policy came from, (K,) strings.
        lams: λ, NaN where there is none, (K,).
        utility_bounds: the bound that was checked, (K,).
        plan_ids: which plan was deployed, (K,); it changes when the agent planned anew.
        optimum: the exact constrained optimum; NaN where it cannot be known.
        threshold: b.
        settings: how the run was made, as plain values: environment, agent, constants, seed, versions, seconds.
        reward_totals, utility_totals: what was collected in each episode, (K,): one sample of V^r, V^u each. Kept where
            exact values cannot be known, else None.
        optima: the optimum of each episode, (K,), where it changes; `optimum` is then their mean. Else None.
        components: which policy of a mixture acted, drawn before the episode, (K,); None where no plan is a mixture.
        weights: the weights of the mixture, (K, 2); (1, 0) for a policy alone. The values above are the mixture's.
    """

    reward_values: Array
    utility_values: Array
    sources: NDArray[np.str_]
    lams: Array
    utility_bounds: Array
    plan_ids: IntArray
    optimum: float
    threshold: float
    settings: Mapping[str, str | int | float] = field(default_factory=dict)
    reward_totals: Array | None = None
    utility_totals: Array | None = None
    optima: Array | None = None
    components: IntArray | None = None
    weights: Array | None = None

    def regret(self) -> Array:
        """Σ_{i≤k} (optimum − V^r(π⁽ⁱ⁾)), signed, (K,)."""
        return np.cumsum((self.optimum if self.optima is None else self.optima) - self.reward_values)

    def columns(self) -> tuple[str, ...]:
        """Names of the columns that this record has."""
        return COLUMNS + tuple(name for name in OPTIONAL if getattr(self, name) is not None)

    def violation(self) -> Array:
        """Hard violation Σ_{i≤k} max{b − V^u(π⁽ⁱ⁾), 0}, (K,)."""
        return np.cumsum(self.violations())

    def violations(self) -> Array:
        """max{b − V^u(π⁽ᵏ⁾), 0} of each episode, (K,)."""
        return np.maximum(self.threshold - self.utility_values, 0.0)

    def violating(self) -> NDArray[np.bool_]:
        """Which episodes violate by more than rounding, (K,); an error where the exact values are not known."""
        if not self.is_exact:
            raise ValueError("the exact values of this record are not known, so nobody can say which episodes violate")
        return self.violations() > ROUNDING

    @property
    def is_exact(self) -> bool:
        """Whether every exact value is known: not so for problems given by functions."""
        return bool(np.isfinite(self.utility_values).all() and np.isfinite(self.reward_values).all())

    def cancelling_violation(self) -> Array:
        """max{Σ_{i≤k} (b − V^u(π⁽ⁱ⁾)), 0}: safe episodes pay for unsafe ones, (K,)."""
        return np.maximum(np.cumsum(self.threshold - self.utility_values), 0.0)

    def safe_deployments(self) -> IntArray:
        """How often the incumbent was deployed up to each episode, (K,)."""
        return np.cumsum(self.sources == "safe", dtype=np.int64)

    def observed(self, last: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and 95 % half-width of the rewards, then of the utilities, collected in the last `last` episodes.

        An estimate from samples of possibly different policies, for problems without exact values; nothing certified.
        """
        if self.reward_totals is None or self.utility_totals is None:
            raise ValueError("this record has exact values: use reward_values and utility_values")
        reward, utility = (_interval(totals[-last:]) for totals in (self.reward_totals, self.utility_totals))
        return reward, utility

    def noting(self, **facts: str | int | float) -> "Record":
        """The same record with more said in its settings."""
        return replace(self, settings={**self.settings, **facts})

    def save(self, folder: str | Path) -> None:
        """Write episodes.npz, then run.toml, each atomically: a folder with run.toml is complete.

        The first, which is sealed, has the hash of the second: neither goes with that of another run.
        """
        folder = Path(folder)
        (folder / SETTINGS).unlink(missing_ok=True)  # of an older record: two halves must never pass for a whole
        text = to_toml(self.settings)
        facts = {"optimum": float(self.optimum), "threshold": float(self.threshold), SEALED: _hash(text.encode())}
        write_arrays(folder / EPISODES, {name: getattr(self, name) for name in self.columns()}, facts)
        write_text(folder / SETTINGS, text)

    @classmethod
    def load(cls, folder: str | Path) -> "Record":
        """The record that `save` wrote into `folder`."""
        folder = Path(folder)
        try:
            arrays, facts = read_arrays(folder / EPISODES, {*COLUMNS, *OPTIONAL})
            columns = [name for name in COLUMNS + OPTIONAL if name in COLUMNS or name in arrays]
            if len({len(arrays[name]) for name in columns}) != 1:
                raise ValueError("its columns differ in length")
            for name in columns:
                if arrays[name].ndim != (2 if name == "weights" else 1) or arrays[name].dtype.kind not in KINDS[name]:
                    raise ValueError(f"its column {name} has type {arrays[name].dtype}, shape {arrays[name].shape}")
            said = _settings_bytes(folder)
            if _hash(said) != facts[SEALED]:
                raise ValueError(f"{SETTINGS} was changed, or is of another run than {EPISODES}")
            return cls(
                **{name: arrays[name] for name in columns},
                optimum=float(facts["optimum"]),
                threshold=float(facts["threshold"]),
                settings=tomllib.loads(said.decode()),
            )
        except DamagedFile:
            raise
        except (KeyError, OSError, TypeError, ValueError, RecursionError) as error:
            raise DamagedFile(
                f"{folder} does not hold a whole record ({type(error).__name__}: {error}): delete it and run again"
            ) from error


def load_settings(folder: Path) -> dict[str, Any]:
    """How the run behind a record was made, without its columns."""
    try:
        return tomllib.loads(_settings_bytes(folder).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{folder} does not hold a whole record ({error}): delete it and run again") from error


def _settings_bytes(folder: Path) -> bytes:
    with (folder / SETTINGS).open("rb") as file:
        text = file.read(LARGEST_SETTINGS + 1)
    if len(text) > LARGEST_SETTINGS:
        raise ValueError(f"{SETTINGS} is larger than {LARGEST_SETTINGS} bytes")
    return text


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _interval(sample: Array) -> tuple[float, float]:
    """Mean and 95 % half-width (normal) of a sample."""
    return float(sample.mean()), 1.96 * float(sample.std(ddof=1)) / len(sample) ** 0.5


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a finished record; run.toml is written last."""
    return (folder / SETTINGS).is_file() and (folder / EPISODES).is_file()
