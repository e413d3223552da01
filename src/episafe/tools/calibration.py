"""The smallest constants that a family of problems bears: one multiplier, and an exact test of the violation rate."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from rich.table import Table

from episafe.agents.opse import OPSE
from episafe.agents.plan_arrays import digest
from episafe.envs import ENVIRONMENTS, make
from episafe.learning.constants import CalibratedFor, Constants
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.sampled_problem import AnyTask, SampledCMDP
from episafe.runs.run import run
from episafe.stats import rate_bound
from episafe.tools.named_object import named

GRID = (4.0, 2.83, 2.0, 1.41, 1.0, 0.71, 0.5, 0.35, 0.25, 0.18, 0.125)  # factors of √2, from the safest down
KEPT = 256  # problems that a process keeps
SCALED = ("C_r", "C_u", "C_dagger", "B_dagger")

Family = Callable[[int], LinearCMDP | SampledCMDP]
Shape = Callable[[AnyTask], Constants]
Facts = dict[str, Any]
OF_ONE_DRAW = ("seed", "redraws")  # of what `make` notes
SIZES = ("horizon", "num_states", "num_actions", "dim", "one_hot", "time_homogeneous")


def _problem(name: str, seed: int, /, **options: Any) -> LinearCMDP:
    """The problem of a seed, by the name of its environment, or of a function as `module:name`."""
    draw: Callable[..., LinearCMDP] = partial(make, name) if name in ENVIRONMENTS else named(name)
    return draw(seed, **options)


@dataclass(frozen=True)
class Trial:
    """One multiplier on all problems: how many violated, and what rate that bounds."""

    multiplier: float
    num_violating: int
    rate_bound: float
    mean_regret: float

    def __str__(self) -> str:
        """In one line, for who waits."""
        return (
            f"multiplier {self.multiplier:g}: {self.num_violating} violating, rate at most {self.rate_bound:.3g}, "
            f"mean regret {self.mean_regret:.4g}"
        )


@dataclass(frozen=True)
class Calibration:
    """What was found: the multiplier, the statement that goes with it, and every trial on the way."""

    multiplier: float
    statement: str
    trials: list[Trial]
    shape: Shape
    family: str
    shared: Facts
    num_episodes: int

    def constants(self, problem: Any) -> Constants:
        """The constants for a problem, or its task, stamped with the statement if it is like those of the family.

        They are calibrated for this task, for OPSE with the rule that goes with them, and for runs of that length; an
        agent of another kind, and a problem that differs in what all problems of the family share, has them as
        heuristic. Give the problem where there is one: of a task, sizes are all that can be compared.
        """
        task = getattr(problem, "task", problem)
        made = scaled(self.shape(task), self.multiplier)
        theirs = _facts(problem)
        known = self.shared if hasattr(problem, "origin") else self.shared.keys() & set(SIZES)
        if any(theirs.get(name) != self.shared[name] for name in known):
            return made
        procedure = OPSE(task, made).procedure
        bound = CalibratedFor(self.family, digest([], task.numbers([task.safe_policy])), procedure, self.num_episodes)
        return made._stamped("calibrated", self.statement, calibrated_for=bound)


def calibrate(
    family: Family,
    name: str,
    *,
    shape: Shape = Constants.tuned,
    delta: float = 0.05,
    confidence: float = 0.95,
    num_problems: int = 100,
    num_episodes: int = 10_000,
    first_seed: int = 0,
    grid: Sequence[float] = GRID,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    on_problem: Callable[[int], None] = lambda num_done: None,
    executor: Executor | None = None,
) -> Calibration:
    """The smallest multiplier of C_r, C_u, C_†, B_† on the grid whose violation rate is below δ, with confidence.

    A problem violates if any of its episodes does, by exact values. The grid is gone through from the safest down, all
    on the same problems, and ends at the first multiplier whose Clopper-Pearson bound exceeds δ; the one before is
    returned. Because the order is fixed beforehand, no correction for several tests is needed.

    Args:
        family: seed ↦ problem; seeds stand for draws from the family.
        name: of the family, for the statement.
        shape: task ↦ the constants to multiply.
        delta: the violation rate to stay below.
        confidence: of the test.
        num_problems: seeds first_seed, first_seed + 1, …
        num_episodes: of each run; the statement is about runs of that length.
        first_seed: choose seeds that the shape was not tuned on.
        grid: multipliers.
        on_trial: called after each multiplier.
        on_problem: called after each run with how many there were.
        executor: where to run; None for this process. Family and shape travel by pickle.
    """
    _require_enough_problems(num_problems, delta, confidence)
    problems = {seed: _drawn(family, seed) for seed in range(first_seed, first_seed + num_problems)}
    trials: list[Trial] = []
    for multiplier in sorted(grid, reverse=True):
        outcome = partial(_outcome, family, shape, multiplier, num_episodes)
        outcomes = []
        for one in (map if executor is None else executor.map)(outcome, problems):
            outcomes.append(one)
            on_problem(len(trials) * num_problems + len(outcomes))
        violating = sum(violates for violates, _ in outcomes)
        regret = float(np.mean([regret for _, regret in outcomes]))
        trials.append(Trial(multiplier, violating, rate_bound(violating, num_problems, confidence), regret))
        on_trial(trials[-1])
        if trials[-1].rate_bound > delta:
            break
    passed = [trial for trial in trials if trial.rate_bound <= delta]
    if not passed:
        raise ValueError(
            f"at the largest multiplier, {trials[0].multiplier:g}, {trials[0].num_violating} of {num_problems} "
            "problems violate: give a grid with larger multipliers, or a larger delta"
        )
    best = passed[-1]
    shared = _shared([_facts(cmdp) for cmdp in problems.values()])
    horizon = f" and horizon {shared['horizon']}" if "horizon" in shared else ""
    rule = OPSE(problems[first_seed].task, shape(problems[first_seed].task)).replan
    statement = (
        f"on the family {name} at most {delta:g} of all problems violate in {num_episodes} episodes, with confidence "
        f"{confidence:g}: {best.num_violating} of {num_problems} did (seeds {first_seed} to "
        f"{first_seed + num_problems - 1}, Clopper-Pearson bound {best.rate_bound:.4f}), multiplier "
        f"{best.multiplier:g}; for OPSE with {rule!r}{horizon}, and for nothing else"
    )
    return Calibration(best.multiplier, statement, trials, shape, name, shared, num_episodes)


def table(calibration: Calibration) -> Table:
    """Every trial, for people."""
    shown = Table("multiplier", "violating", "rate at most", "mean regret", title="From the safest down")
    for trial in calibration.trials:
        shown.add_row(*(f"{value:.4g}" for value in asdict(trial).values()))
    return shown


def scaled(constants: Constants, multiplier: float) -> Constants:
    """The constants with every bonus scale multiplied."""
    return constants.replace(**{name: multiplier * getattr(constants, name) for name in SCALED})


def family_of(text: str, options: dict[str, Any]) -> Family:
    """The family that `NAME` (an environment, with options) or `module:function` (seed ↦ LinearCMDP) stands for."""
    if text not in ENVIRONMENTS and ":" not in text:
        raise ValueError(f"no environment {text!r}; there are {', '.join(ENVIRONMENTS)}; or give MODULE:FUNCTION")
    if text not in ENVIRONMENTS:
        named(text)  # what is wrong with it is said here
    return partial(_problem, text, **options)


def _facts(problem: Any) -> Facts:
    """What two problems of one family may have in common: sizes and, of a problem, where it comes from."""
    task = getattr(problem, "task", problem)
    drawn = {name: said for name, said in getattr(problem, "origin", {}).items() if name not in OF_ONE_DRAW}
    return {name: getattr(task, name) for name in SIZES} | drawn


def _shared(every: Sequence[Facts]) -> Facts:
    """The facts on which all agree."""
    return {name: value for name, value in every[0].items() if all(one.get(name) == value for one in every)}


def _outcome(family: Family, shape: Shape, multiplier: float, num_episodes: int, seed: int) -> tuple[bool, float]:
    """Whether a problem of the family violates at this multiplier, and its regret."""
    cmdp = _drawn(family, seed)
    record = run(cmdp, OPSE(cmdp.task, scaled(shape(cmdp.task), multiplier)), num_episodes, seed)
    return bool(record.violating().any()), float(record.regret()[-1])


@lru_cache(maxsize=KEPT)
def _drawn(family: Family, seed: int) -> LinearCMDP:
    """A problem, drawn once a process."""
    cmdp = family(seed)
    if not cmdp.is_exact:
        kind = type(cmdp).__name__
        raise ValueError(f"seed {seed} gave a {kind}: exact violation needs problems with a kernel, es.LinearCMDP")
    return cmdp


def _require_enough_problems(num_problems: int, delta: float, confidence: float) -> None:
    if not (0 < delta < 1 and 0 < confidence < 1):
        raise ValueError(f"delta and confidence must be in (0, 1), got {delta!r} and {confidence!r}")
    if num_problems < 1 or rate_bound(0, num_problems, confidence) > delta:
        needed = int(np.ceil(np.log1p(-confidence) / np.log1p(-delta)))
        raise ValueError(
            f"{num_problems} problems cannot show a rate below {delta:g} with confidence {confidence:g}, even without "
            f"one violation: use at least {needed}"
        )
