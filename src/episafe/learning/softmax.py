"""The composite softmax policy π^λ and its planner."""

from typing import Any, NamedTuple

from episafe.arrays import Array, IntArray
from episafe.learning import kernels
from episafe.learning.constants import Constants
from episafe.learning.model import Scales, Search
from episafe.learning.ridge import Fitted, regression_for
from episafe.problems.policy import in_range
from episafe.problems.sampled import AnyTask


class SoftmaxPolicy:
    """π^λ_h(·|s) = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ), a function of features: it acts at states never seen before."""

    def __init__(self, task: AnyTask, fitted: Fitted, lam: float) -> None:
        self._task, self._fitted, self.lam = task, fitted, lam
        self._table: Array | None = None

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        in_range("step", h, self._task.horizon)
        if self._task.num_states is not None:
            in_range("state", state, self._task.num_states)
        return self._fitted.probabilities(h, state)

    def table(self) -> Array:
        """π as an array (H, S, A), every state filled, seen or not."""
        if self._table is None:
            self._table = self._fitted.table()
            self._table.setflags(write=False)
        return self._table


class Decision(NamedTuple):
    """What Algorithm 2 decides: a source (`kernels.SAFE`, `ZERO`, `SEARCH`), λ, and the bound that was checked."""

    source: int
    lam: float
    utility_bound: float


class SoftmaxPlanner:
    """The regression and, on it, the search for λ.

    Args:
        task: what the learner is told.
        constants: scales, κ, ρ and search limits.
        pessimistic: True for OPSE: −C_u, the compensation bonus †, and the incumbent where λ_max fails. False for
            Ghosh et al.: +C_u, no compensation, no incumbent.
    """

    def __init__(self, task: AnyTask, constants: Constants, *, pessimistic: bool) -> None:
        self._task = task
        self.scales = Scales(
            C_r=float(constants.C_r),
            utility_bonus=(-1.0 if pessimistic else 1.0) * float(constants.C_u),
            C_dagger=float(constants.C_dagger) if pessimistic else 0.0,
            B_dagger=float(constants.B_dagger) if pessimistic else 0.0,
            kappa=float(constants.kappa),
            curve=float(constants.curve),
            spread=float(constants.spread),
        )
        self.search = Search(task.threshold, float(constants.lam_max), int(constants.num_halvings), pessimistic)
        self.regression = regression_for(task, float(constants.ridge))

    @property
    def information(self) -> Array:
        """ln det Λ_h up to a constant, shape (H,)."""
        return self.regression.log_det

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode to the regression."""
        self.regression.observe(states, actions)

    def decide(self) -> Decision:
        """Which λ to deploy, from all that was observed."""
        known = self.regression
        return Decision(*kernels.decide(known.model, known.support, known.work, self.scales, self.search))

    def utility_bound(self, lam: float) -> float:
        """V̲ᵘ_1(s₁) of π^λ, on the bonuses of the last decision."""
        known = self.regression
        return float(kernels.evaluate_once(known.model, known.support, known.work, self.scales, lam))

    def policy(self, lam: float) -> SoftmaxPolicy:
        """π^λ of the λ that was evaluated last, frozen."""
        return SoftmaxPolicy(self._task, self.regression.fitted(self.scales, lam), lam)
