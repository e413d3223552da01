"""The problem sets of `episafe-bench-1`: a hundred problems each by seed, frozen, with hashes and exact optima.

A set never changes. Another draw, another environment or another range is another set, of the next version.
"""

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from episafe.checks import as_whole
from episafe.envs import make
from episafe.errors import DamagedFile
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.unknown_signals import UnknownSignals

VERSION = "episafe-bench-1"
FROZEN = f"{VERSION}.csv"
REPORTING, TUNING = 41_000, 42_000  # the first seeds to report on, where nothing may be chosen, and to choose on
NUM_REPORTING, NUM_TUNING = 100, 20
DIGITS = 6  # of drawn options: a record says them in full
LETTERS = 16  # of a hash
CLOSE = 1e-9  # between an optimum and the frozen one, of size H: processors round sums in different orders

ProblemKind = Literal["known signals", "learned signals", "two constraints", "small slack", "exogenous"]


class Frozen(NamedTuple):
    """What is known of one problem beforehand: its hash, the exact optimum and the incumbent's reward."""

    hash: str
    optimum: float
    incumbent_reward: float


@dataclass(frozen=True)
class ProblemSet:
    """A hundred problems to report on, and twenty others to tune on.

    Attributes:
        name: of the set.
        kind: what is asked of an agent there.
        env: the environment that problems are drawn from.
        options: of it, for all problems.
        drawn: options that differ from problem to problem, uniform between two ends: environments that draw nothing
            themselves would be one problem a hundred times.
        least_gain: seeds are passed over whose optimum is less than this above the incumbent's reward: with nothing to
            gain nothing is compared.
    """

    name: str
    kind: ProblemKind
    env: str
    options: Mapping[str, Any] = field(default_factory=dict)
    drawn: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    least_gain: float = 0.0

    @property
    def seeds(self) -> list[int]:
        """Seeds to report on, a hundred."""
        return seeds_of(self.name)[0]

    @property
    def tuning_seeds(self) -> list[int]:
        """Seeds to choose settings on, twenty."""
        return seeds_of(self.name)[1]

    def options_of(self, seed: int) -> dict[str, Any]:
        """All options of the problem of a seed, as `es.make(env, seed, **options)` takes them."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        ends = {name: rng.uniform(*between) for name, between in self.drawn.items()}
        return {**self.options, **{name: round(float(value), DIGITS) for name, value in ends.items()}}

    def problem(self, seed: int) -> LinearCMDP | UnknownSignals:
        """The problem of a seed of this set; an error if it is not, bit for float32 bit, what was frozen."""
        known, made = self.frozen(seed), self._made(seed)
        if problem_hash(made) != known.hash:
            raise DamagedFile(
                f"{VERSION} {self.name} {seed} is not what was frozen: its hash is {problem_hash(made)} and was "
                f"{known.hash}. Install the version of episafe that a result is of, or compare with nothing frozen"
            )
        made.origin |= {"problem_set": f"{VERSION}/{self.name}"}
        return UnknownSignals(made) if self.kind == "learned signals" else made

    def frozen(self, seed: int) -> Frozen:
        """What is known of the problem of a seed without drawing it."""
        at = self.name, as_whole("seed", seed, 0)
        if at not in frozen_problems():
            raise ValueError(
                f"{self.name} has no problem {seed}: it has {self.seeds[0]} to {self.seeds[-1]} to report on, and "
                f"{self.tuning_seeds[0]} to {self.tuning_seeds[-1]} to tune on, some of them passed over"
            )
        return frozen_problems()[at]

    def freeze_all(self) -> Iterator[tuple[int, Frozen]]:
        """The seeds of the set with what is to be written down of each."""
        for first, count in ((REPORTING, NUM_REPORTING), (TUNING, NUM_TUNING)):
            drawn = ((seed, self.freeze(seed)) for seed in range(first, TUNING + first))
            wanted = ((s, one) for s, one in drawn if one.optimum - one.incumbent_reward >= self.least_gain)
            yield from islice(wanted, count)

    def freeze(self, seed: int) -> Frozen:
        """What is to be written down of the problem of a seed."""
        made = self._made(seed)
        return Frozen(problem_hash(made), made.optimal_value(), float(made.evaluate(made.task.safe_policy)[0]))

    def _made(self, seed: int) -> LinearCMDP:
        return make(self.env, seed, **self.options_of(seed))


_SETS = (
    ProblemSet("tabular", "known signals", "tabular", least_gain=0.1),
    ProblemSet("streaming", "known signals", "streaming", least_gain=0.1),
    ProblemSet("linear", "known signals", "linear"),
    ProblemSet("media", "known signals", "media",
               drawn={"fast_rate": (0.8, 0.95), "slow_rate": (0.05, 0.2), "departure_rate": (0.6, 0.9)}),
    ProblemSet("ring", "known signals", "ring", drawn={"limit": (2.4, 4.0), "slack": (0.6, 2.2)}),
    ProblemSet("jobs", "known signals", "jobs", drawn={"threshold": (3.0, 3.8), "slack": (0.2, 0.6)}),
    ProblemSet("rover", "known signals", "rover", drawn={"slip": (0.05, 0.15), "limit": (0.3, 0.4)}),
    ProblemSet("box", "known signals", "box", drawn={"limit": (0.098, 0.106), "slip": (0.099, 0.101)}),
    ProblemSet("cliff", "known signals", "cliff", drawn={"slip": (0.0, 0.1), "limit": (1.5, 2.5)}),
    ProblemSet("riverswim", "known signals", "riverswim", drawn={"limit": (8.0, 12.0), "slack": (3.0, 6.0)}),
    ProblemSet("dirichlet", "known signals", "dirichlet"),
    ProblemSet("queue", "known signals", "queue", drawn={"throughput": (0.3, 0.45), "slack": (3.0, 7.0)}),
    ProblemSet("stepmix", "known signals", "stepmix"),
    ProblemSet("inventory", "exogenous", "inventory"),
    ProblemSet("battery", "exogenous", "battery"),
    ProblemSet("cloud", "exogenous", "cloud"),
    ProblemSet("tabular-two", "two constraints", "tabular", {"num_constraints": 2}, least_gain=0.1),
    ProblemSet("larger-two", "two constraints", "tabular",
               {"num_constraints": 2, "num_states": 8, "num_actions": 4, "horizon": 6}, least_gain=0.1),
    ProblemSet("tabular-tight", "small slack", "tabular", {"threshold_scale": 0.95}, least_gain=0.03),
    ProblemSet("streaming-tight", "small slack", "streaming", {"threshold_scale": 0.95}, least_gain=0.03),
    ProblemSet("media-tight", "small slack", "media", {"slack": 0.25},
               {"fast_rate": (0.8, 0.95), "slow_rate": (0.05, 0.2), "departure_rate": (0.6, 0.9)}),
    ProblemSet("tabular-learned", "learned signals", "tabular", least_gain=0.1),
    ProblemSet("streaming-learned", "learned signals", "streaming", least_gain=0.1),
)  # fmt: skip
PROBLEM_SETS: dict[str, ProblemSet] = {one.name: one for one in _SETS}


def problem_set(name: str) -> ProblemSet:
    """The problem set of that name.

    Example:
        >>> from episafe.benchmark import problem_set
        >>> media = problem_set("media")
        >>> cmdp = media.problem(media.seeds[0])
        >>> abs(cmdp.optimal_value() - media.frozen(media.seeds[0]).optimum) < 1e-9
        True
    """
    if name not in PROBLEM_SETS:
        raise ValueError(f"no problem set {name!r}; {VERSION} has {', '.join(PROBLEM_SETS)}")
    return PROBLEM_SETS[name]


def problem_hash(cmdp: LinearCMDP) -> str:
    """SHA-256 of all that the problem is, as float32: kernel, signals, features, thresholds, start; not its incumbent.

    The last bits of float64 differ between processors, and the incumbent may be one of several alike: its value is
    compared, and its table is not.
    """
    task = cmdp.task
    parts = [cmdp.P, task.reward, *(one.utility for one in task.constraints), task.thresholds]
    parts += [np.array([task.initial_state, task.time_homogeneous]), *([] if task.one_hot else [task.phi])]
    found = hashlib.sha256()
    for part in parts:
        plain = np.ascontiguousarray(part, dtype=np.float32) + np.float32(0)  # −0 is 0
        found.update(f"{plain.shape}".encode() + plain.tobytes())
    return found.hexdigest()[:LETTERS]


@cache
def frozen_problems() -> Mapping[tuple[str, int], Frozen]:
    """All that was frozen, by set and seed."""
    text = files("episafe.benchmark").joinpath(FROZEN).read_text()
    rows = csv.DictReader(text.splitlines())
    return {
        (row["set"], int(row["seed"])): Frozen(row["hash"], float(row["optimum"]), float(row["incumbent_reward"]))
        for row in rows
    }


@cache
def seeds_of(name: str) -> tuple[list[int], list[int]]:
    """The seeds of a set: to report on, and to tune on."""
    seeds = [seed for one, seed in frozen_problems() if one == name]
    return [seed for seed in seeds if seed < TUNING], [seed for seed in seeds if seed >= TUNING]


def is_close(ours: Frozen, theirs: Frozen) -> bool:
    """Whether two say the same: the hash, and values up to rounding."""
    values = zip(ours[1:], theirs[1:], strict=True)
    return ours.hash == theirs.hash and all(math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE) for a, b in values)
