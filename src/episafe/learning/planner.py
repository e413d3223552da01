"""The composite softmax policy π^λ, its planner, and what that proposes to a certifier; and when to plan again.

Between plans the policy is fixed and stays certified, so that the rule for it touches regret, never safety.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from episafe.kernels import decision, multiplier_batch
from episafe.kernels.backward_pass import value_limits
from episafe.kernels.model_arrays import Scales, Search
from episafe.learning import shared_steps
from episafe.learning.constants import Constants
from episafe.learning.fitted_policy import Fitted
from episafe.learning.multiplier_search import Bisection, LamSearch
from episafe.learning.regression import AnyRegression, fitted, regression_for
from episafe.learning.regression_arrays import fill, stored
from episafe.problems.policy import Policy, in_range, table_as_json
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.state_reader import Saved, State
from episafe.types import SAFE, Amount, Array, IntArray


class Aim(NamedTuple):
    """What a proposal should reach, and how bold it may be.

    Attributes:
        utility: to be reached by the planner's estimate; (m,) where there are several constraints.
        optimism: the scale of the utility's bonus, in place of −C_u; 0 to keep that.
        boldness: by which the bonus of the reward, C_r, is multiplied.
    """

    utility: Amount
    optimism: float = 0.0
    boldness: float = 1.0


class SoftmaxPolicy(Policy):
    """π^λ_h(·|s) = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ), a function of features: it acts at states never seen before."""

    is_checked = True

    def __init__(self, task: AnyTask, fitted: Fitted, lam: float) -> None:
        self._task, self.fitted, self.lam = task, fitted, lam
        self._table: Array | None = None

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        in_range("step", h, self._task.horizon)
        if self._task.num_states is not None:
            in_range("state", state, self._task.num_states)
        return self.fitted.probabilities(h, state)

    def along(self, steps: Sequence[tuple[int, Any, int]]) -> list[float]:
        """π_h(a_h|s_h) at the steps (h, s_h, a_h) of an episode, all at once where counts are looked up."""
        is_own = type(self) is SoftmaxPolicy  # a subclass may answer something else
        return self.fitted.along(steps) if is_own and hasattr(self.fitted, "along") else super().along(steps)

    def table(self) -> Array:
        """π as an array (H, S, A), every state filled, seen or not."""
        if self._table is None:
            self._table = self.fitted.table()
            self._table.setflags(write=False)
        return self._table

    def as_json(self) -> dict[str, Any]:
        """Its table where the states are listed; else what it keeps of the regression."""
        return table_as_json(self.table()) if self._task.is_listed else self.fitted.as_json()


class Decision(NamedTuple):
    """What Algorithm 2 decides: a source (`types.SAFE`, `ZERO`, `SEARCH`), λ, and the bound that was checked."""

    source: int
    lam: float
    utility_bound: Amount


class SoftmaxPlanner:
    """The regression and, on it, the search for λ.

    Args:
        task: what the learner is told.
        constants: scales, κ, ρ and search limits.
        pessimistic: True for OPSE: −C_u, the compensation bonus †, and the incumbent where C_λ fails. False for
            Ghosh et al.: +C_u, no compensation, no incumbent.
        search: how λ is looked for.
    """

    def __init__(
        self, task: AnyTask, constants: Constants, *, pessimistic: bool, search: LamSearch = Bisection()
    ) -> None:
        constants.refuse_outside_scope(task, 0)
        if search.points and task.one_hot:
            raise ValueError("Sections is for features: with one-hot features use Bisection() or WarmStart()")
        self._task, self._pessimistic, self._how, self._constants = task, pessimistic, search, constants
        self.use(constants)
        self._learning = constants.ridge, constants.C_theta, pessimistic
        self.regression = self.blank()

    def blank(self) -> AnyRegression:
        """A regression that has learned nothing yet."""
        return regression_for(self._task, *self._learning)

    def state(self) -> State:
        """The regression as named arrays."""
        return stored(self.regression)

    def restored(self, saved: Saved) -> "SoftmaxPlanner":
        """A planner like this one that knows what was stored of another; this one is not changed."""
        made = copy.copy(self)
        made.regression = made.blank()
        fill(made.regression, saved)
        made.use(made._constants.reaching(made.regression.num_episodes))
        made.refresh()  # bonuses of 0 would make any bound that is asked for too high
        return made

    def changed(self, task: AnyTask, constants: Constants) -> "SoftmaxPlanner":
        """A planner on the same regression, for the same task with another limit and with other constants."""
        was = self._constants
        if (constants.ridge, constants.C_theta) != (was.ridge, was.C_theta):
            raise ValueError("ridge and C_theta are part of what was learned: leave them, or begin a new folder")
        made = copy.copy(self)
        made._task, made._constants = task, constants
        made.use(constants.reaching(self.num_learned))
        return made

    def reach(self, num_episodes: int) -> None:
        """Plan with the constants of the epoch that holds so many episodes, whichever came before it."""
        if self._constants.scope is None:  # for any number of episodes
            return
        self._constants.refuse_outside_scope(self._task, num_episodes)
        if self.constants_now.reaching(num_episodes) is not self.constants_now:
            self.use(self._constants.reaching(num_episodes))

    def use(self, constants: Constants) -> None:
        """Plan with these scales and search limits from now on, on the same regression and so with the same ρ."""
        self.constants_now = constants
        C_u, C_dagger, B_dagger = constants.C_u, 0.0, 0.0
        if self._pessimistic:
            C_u, C_dagger, B_dagger = -C_u, constants.C_dagger, constants.B_dagger
        self.scales = Scales(constants.C_r, C_u, C_dagger, B_dagger, constants.kappa, constants.curve, constants.spread)
        self.search = self._search(constants)

    def _search(self, constants: Constants) -> Search:
        """What the search on λ is told."""
        limits = self._task.threshold, constants.lam_max, constants.num_halvings
        return Search(*limits, self._pessimistic, self._how.factor)

    @property
    def num_learned(self) -> int:
        """How many episodes were learned from, logged ones included."""
        return self.regression.num_episodes

    @property
    def information(self) -> Array:
        """ln det Λ_h up to a constant, shape (H,)."""
        return self.regression.model.log_det

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode to the regression."""
        self.regression.observe(states, actions)

    def check_length(self, num_episodes: int) -> None:
        """Refuse so many episodes more, where the constants are not for them."""
        if self._constants.scope is not None:
            self._constants.refuse_outside_scope(self._task, self.num_learned + num_episodes)

    def observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:
        """Add the rewards and utilities `seen` (H, 2) of the episode observed last, where they are not known."""
        self.regression.observe_signals(actions, seen)

    def settings(self) -> dict[str, str | int | float]:
        """The search, every constant, and what the task tells of itself beyond the rule."""
        told: dict[str, str | int | float] = {"time_homogeneous": True} if self._task.time_homogeneous else {}
        if any(one.slack is None for one in self._task.constraints):
            told["slack"] = "unknown"
        return {"search": str(self._how)} | self._constants.settings() | told

    def arguments(self) -> dict[str, Any]:
        """Constants and search, as an agent is given them."""
        return {"constants": self._constants, "search": self._how}

    def decide(self) -> Decision:
        """Which λ to deploy in the next episode, from all that was observed."""
        self.reach(self.num_learned + 1)
        known, points = self.regression, self._how.points
        known.prepare(self.scales)
        if points and known.model.is_dense:
            found = multiplier_batch.decide(known.model, known.support, known.work, self.scales, self.search, points)
        else:
            found = decision.decide(known.model, known.support, known.work, self.scales, self.search)
        return Decision(*found)

    def refresh(self) -> None:
        """The bonuses of what is known now, as a decision begins with them."""
        known = self.regression
        if known.shared:
            shared_steps.spread(known.model)
        decision.refresh(known.model, known.support.size, known.work, self.scales)

    def utility_bound(self, lam: float) -> float:
        """V̲ᵘ_1(s₁) of π^λ, on the bonuses of the last decision."""
        known = self.regression
        return float(decision.evaluate_at(known.model, known.support, known.work, self.scales, lam))

    def bound_now(self, lam: float) -> float:
        """V̲ᵘ_1(s₁) of π^λ from all that was observed, as `decide` would check it."""
        self.regression.prepare(self.scales)
        self.refresh()
        return self.utility_bound(lam)

    def utility_bounds(self, lams: Array) -> Array:
        """V̲ᵘ_1(s₁) of π^λ for each of `lams` (L,) in one pass, for features; on the bonuses of the last decision."""
        known = self.regression
        if not known.model.is_dense:
            raise ValueError("several λ at once is for features: with one-hot features use utility_bound(lam)")
        return multiplier_batch.utility_bounds(known.model, known.support, known.work, self.scales, lams)

    def policy(self, lam: float, scales: Scales | None = None) -> Policy:
        """π^λ of the λ that was evaluated last, frozen; with the scales that it was evaluated with."""
        return SoftmaxPolicy(self._task, fitted(self.regression, scales or self.scales, lam), lam)

    def _most_lost(self) -> float:
        """How far a total utility can fall short of H: else what was never seen would look as if it lost all. Where
        constants are those of a planner that only proposes; the paper's have pessimism of their own.
        """
        least = self._task.least_total
        return self._task.horizon - least if least > 0 and self._constants.only_proposes else math.inf

    def _scales_of(self, aim: Aim) -> Scales:
        scales = self.scales._replace(C_r=aim.boldness * self.scales.C_r, most_lost=self._most_lost())
        return scales._replace(utility_bonus=aim.optimism) if aim.optimism > 0 else scales

    def estimate(self, policy: Policy, aim: Aim) -> tuple[float, float]:
        """Reward and utility of a policy by what `propose` goes by: Q̄ʳ and Q̲ᵘ of `backward_pass.action_values`, in the
        mean over its actions. For listed states.
        """
        known, scales, table = self.regression, self._scales_of(aim), policy.table()
        assert known.is_listed
        known.prepare(scales)
        self.refresh()
        V: Array = np.zeros((2, known.phi.shape[3]))
        for h in range(len(table) - 1, -1, -1):
            n = int(known.support.size[h])
            beta = known.work.bonus[h, :, :n]
            most_r, most_u, least_u = value_limits.py_func(len(table) - 1 - h, len(beta), scales)
            least: Array = np.array([0.0, 0.0 if known.model.is_dense else least_u])  # as in `backward_pass.average`
            r, u = known.expected(h, V - least[:, None]) + least[:, None, None]
            Q_r = known.support.reward[h, :, :n] + np.clip(scales.C_r * beta + r, 0.0, most_r)
            Q_u = known.support.utility[h, :, :n] + np.clip(scales.utility_bonus * beta + u, least_u, most_u)
            V = (table[h, known.state_of[h, :n]].T * np.array([Q_r, Q_u])).sum(axis=1)
        return float(V[0, 0]), float(V[1, 0])

    def earned(self) -> float:
        """The most that any policy earns by what was seen alone, without bonus and whatever its utility; 0 at least.

        It is V̄ʳ at C_r = λ = 0, less the κH ln A that entropy may have brought.
        """
        entropy = self.scales.kappa * self._task.horizon * math.log(self._task.num_actions)
        return max(self.propose(Aim(self._task.least_total, boldness=0.0)).reward - entropy, 0.0)

    def propose(self, aim: Aim) -> "Proposal":
        """The policy of the smallest λ whose estimated utility reaches the aim; of C_λ where none does."""
        known, scales = self.regression, self._scales_of(aim)
        search = self.search._replace(threshold=aim.utility)
        known.prepare(scales)
        source, lam, _ = decision.decide(known.model, known.support, known.work, scales, search)
        if source == SAFE:
            lam = search.lam_max
            decision.evaluate_at(known.model, known.support, known.work, scales, lam)
        V_r, V_dagger, _ = known.start_values
        reward = float(V_r + V_dagger)
        if not math.isfinite(reward):
            raise FloatingPointError(f"the planner promises a reward of {reward}: nothing can be proposed from this")
        return Proposal(self.policy(lam, scales), lam, reward)


class Proposal(NamedTuple):
    """π^λ and what the planner promises of it: V̄ʳ + V̄†, an optimistic reward. Nothing here is proved."""

    policy: Policy
    lam: float
    reward: float


class Replanning(Protocol):
    """Decides from how much is known: `information` is ln det Λ_h per step, or ln(n ∨ 1) per (h, s, a) for DOPE."""

    def due(self, information_then: Array, information_now: Array) -> bool:
        """Whether to plan again before the next episode."""


@dataclass(frozen=True)
class Every:
    """Plan before every episode, as the paper does."""

    def due(self, information_then: Array, information_now: Array) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class Doubling:
    """Plan again when some information grew by more than `growth` since the last plan (rare switching).

    With ln det Λ_h this makes at most 1 + dH ln(1 + K/(ρd))/growth plans in K episodes.
    """

    growth: float = 0.3

    def __post_init__(self) -> None:
        if not self.growth > 0:
            raise ValueError(f"growth must be > 0, got {self.growth!r}; to plan before every episode use Every()")

    def due(self, information_then: Array, information_now: Array) -> bool:
        """Whether some entry grew by more than `growth`."""
        return bool((information_now - information_then > self.growth).any())


def parse_replan(text: str) -> Replanning:
    """ "every" or "doubling:GROWTH" as a replanning rule."""
    kind, _, growth = text.partition(":")
    if kind == "every" and not growth:
        return Every()
    if kind == "doubling":
        try:
            return Doubling(float(growth)) if growth else Doubling()
        except ValueError as error:
            raise ValueError(f"replan {text!r}: {error}") from error
    raise ValueError(f'replan must be "every" or "doubling:GROWTH", e.g. "doubling:0.3", got {text!r}')
