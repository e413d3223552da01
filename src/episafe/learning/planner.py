"""The composite softmax policy π^λ and its planner."""

from typing import Any, NamedTuple

from episafe.kernels import decision, multiplier_batch
from episafe.kernels.model_arrays import DenseModel, Scales, Search
from episafe.learning import shared_steps
from episafe.learning.constants import Constants
from episafe.learning.fitted_policy import Fitted
from episafe.learning.multiplier_search import Bisection, LamSearch, Sections, WarmStart
from episafe.learning.regression import Regression, SampledRegression, regression_for
from episafe.problems.policy import Acting, in_range
from episafe.problems.sampled import AnyTask
from episafe.types import Array, IntArray


class SoftmaxPolicy(Acting):
    """π^λ_h(·|s) = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ), a function of features: it acts at states never seen before."""

    def __init__(self, task: AnyTask, fitted: Fitted, lam: float) -> None:
        self._task, self.fitted, self.lam = task, fitted, lam
        self._table: Array | None = None

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        in_range("step", h, self._task.horizon)
        if self._task.num_states is not None:
            in_range("state", state, self._task.num_states)
        return self.fitted.probabilities(h, state)

    def table(self) -> Array:
        """π as an array (H, S, A), every state filled, seen or not."""
        if self._table is None:
            self._table = self.fitted.table()
            self._table.setflags(write=False)
        return self._table


class Decision(NamedTuple):
    """What Algorithm 2 decides: a source (`decision.SAFE`, `ZERO`, `SEARCH`), λ, and the bound that was checked."""

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
        search: how λ is looked for.
    """

    def __init__(
        self, task: AnyTask, constants: Constants, *, pessimistic: bool, search: LamSearch = Bisection()
    ) -> None:
        self._task, self._pessimistic, self._how = task, pessimistic, search
        self._points = _points(search, task)
        self.use(constants)
        self._learning = float(constants.ridge), float(constants.C_theta), pessimistic
        self.regression = self.blank()

    def blank(self) -> Regression:
        """A regression that has learned nothing yet."""
        return regression_for(self._task, *self._learning)

    def use(self, constants: Constants) -> None:
        """Plan with these scales and search limits from now on, on the same regression and so with the same ρ."""
        pessimistic, search = self._pessimistic, self._how
        self.scales = Scales(
            C_r=float(constants.C_r),
            utility_bonus=(-1.0 if pessimistic else 1.0) * float(constants.C_u),
            C_dagger=float(constants.C_dagger) if pessimistic else 0.0,
            B_dagger=float(constants.B_dagger) if pessimistic else 0.0,
            kappa=float(constants.kappa),
            curve=float(constants.curve),
            spread=float(constants.spread),
        )
        self.search = Search(
            threshold=self._task.threshold,
            lam_max=float(constants.lam_max),
            num_halvings=int(constants.num_halvings),
            fallback=pessimistic,
            factor=search.factor if isinstance(search, WarmStart) else 0.0,
        )

    @property
    def information(self) -> Array:
        """ln det Λ_h up to a constant, shape (H,)."""
        return self.regression.log_det

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode to the regression."""
        self.regression.observe(states, actions)

    def observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:
        """Add the rewards and utilities `seen` (H, 2) of the episode observed last, where they are not known."""
        if isinstance(self.regression, SampledRegression):
            self.regression.observe_signals(states, actions, seen)

    def decide(self) -> Decision:
        """Which λ to deploy, from all that was observed."""
        known = self.regression
        known.prepare(self.scales)
        if self._points and isinstance(known.model, DenseModel):
            found = multiplier_batch.decide(
                known.model, known.support, known.work, self.scales, self.search, self._points
            )
        else:
            found = decision.decide(known.model, known.support, known.work, self.scales, self.search)
        return Decision(*found)

    def refresh(self) -> None:
        """The bonuses of what is known now, as a decision begins with them."""
        known = self.regression
        if known.shared:
            shared_steps.spread(known.model)
        decision.refresh_once(known.model, known.support.size, known.work, self.scales)

    def utility_bound(self, lam: float) -> float:
        """V̲ᵘ_1(s₁) of π^λ, on the bonuses of the last decision."""
        known = self.regression
        return float(decision.evaluate_once(known.model, known.support, known.work, self.scales, lam))

    def utility_bounds(self, lams: Array) -> Array:
        """V̲ᵘ_1(s₁) of π^λ for each of `lams` (L,) in one pass, for features; on the bonuses of the last decision."""
        known = self.regression
        if not isinstance(known.model, DenseModel):
            raise ValueError("several λ at once is for features: with one-hot features use utility_bound(lam)")
        return multiplier_batch.utility_bounds(known.model, known.support, known.work, self.scales, lams)

    def policy(self, lam: float, scales: Scales | None = None) -> SoftmaxPolicy:
        """π^λ of the λ that was evaluated last, frozen; with the scales that it was evaluated with."""
        return SoftmaxPolicy(self._task, self.regression.fitted(scales or self.scales, lam), lam)


def _points(search: LamSearch, task: AnyTask) -> int:
    """How many λ a pass evaluates, 0 for one at a time."""
    if not isinstance(search, Sections):
        return 0
    if task.one_hot:
        raise ValueError("Sections is for features: with one-hot features use Bisection() or WarmStart()")
    return search.points
