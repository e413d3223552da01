"""The planner by the rules of the paper's released code, where they differ from its text: for the published figures.

    Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h+1)(1+κ ln A)}     every limit is one step larger than the text's
    Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h+1)}
    Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, 0, H−h+1}
    V̄ʳ = Σ π(Q̄ʳ − κ π ln π),  V̄ʳ_{H+1} = κ ln A / A          π is in the entropy twice; for Ghosh et al. there is none

λ is the upper end after all halvings of [0, C_λ]. It is tested once more for OPSE, and never for Ghosh et al.; neither
λ = 0 nor C_λ is tried before. Both begin with an episode of the incumbent. docs/paper-map.md has what each changes.
"""

from typing import Any

import numpy as np

from episafe.kernels.mixing import admits
from episafe.kernels.model_arrays import Scales
from episafe.kernels.table_passes import Tables, released_pass
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch, smallest_passing
from episafe.learning.planner import Decision, SoftmaxPlanner
from episafe.problems.policy import Policy, TablePolicy
from episafe.problems.sampled_problem import AnyTask
from episafe.types import SAFE, SEARCH, Array, Variant


class ReleasedPlanner(SoftmaxPlanner):
    """It learns as the `SoftmaxPlanner` does, and decides by the released rules, on tables of all states.

    Args:
        task: with listed states.
        constants: hand-set ones, without curve or spread.
        pessimistic: True for OPSE, False for Ghosh et al.
        search: `Bisection()`.
    """

    def __init__(
        self, task: AnyTask, constants: Constants, *, pessimistic: bool, search: LamSearch = Bisection()
    ) -> None:
        if not task.is_listed or task.time_homogeneous:
            raise ValueError(
                'the released rules are for listed states, each step learned by itself: use variant="text"'
            )
        if constants.level != "heuristic" or constants.curve or constants.spread or search != Bisection():
            raise ValueError(
                "the released rules go with Bisection() and constants such as those of Constants.paper: they have no "
                'theorem, no calibration, no curve, no spread; change these, or use variant="text"'
            )
        super().__init__(task, constants, pessimistic=pessimistic, search=search)
        self._listed, self._table = task, np.empty(task.reward.shape)

    def decide(self) -> Decision:
        """Which λ to deploy, from all that was observed."""
        found = self._halved(self._tables())
        if self.num_learned == 0 or (self._pessimistic and not admits(found.utility_bound, self.search.threshold)):
            return found._replace(source=SAFE, lam=np.nan)
        return found

    def _halved(self, tables: Tables) -> Decision:
        """The λ that halvings of [0, C_λ] find, and its bound."""
        b, lam_max, num_halvings, *_ = self.search
        lam = smallest_passing(lambda lam: admits(self._evaluate(tables, lam), b), lam_max, num_halvings)
        return Decision(SEARCH, lam, self._evaluate(tables, lam))

    def policy(self, lam: float, scales: Scales | None = None) -> Policy:
        """π^λ of the λ that was evaluated last."""
        return TablePolicy(self._table)

    @property
    def entropy(self) -> tuple[float, float]:
        """How V̄ʳ counts the entropy: −scale·Σ π^power ln π. (κ, 2), and (0, 1) for Ghosh et al."""
        return (self.scales.kappa, 2.0) if self._pessimistic else (0.0, 1.0)

    @property
    def steps_limited(self) -> Array:
        """How many steps the limits of each step are for, (H,): one more than are left."""
        return np.arange(self._listed.horizon, 0.0, -1.0)

    @property
    def value_after(self) -> float:
        """V̄ʳ_{H+1}, the entropy of the uniform policy after the last step."""
        A = self._listed.num_actions
        return self.entropy[0] * float(np.log(A)) / A

    def _tables(self) -> Tables:
        task, (C_r, C_u, C_dagger, B_dagger, *_), (scale, _) = self._listed, self.scales, self.entropy
        assert self.regression.is_listed
        P_hat, bonus = self.regression.tables()
        added = bonus[..., None] * np.array([C_r, C_dagger, C_u])
        added[-1, ..., 0] += self._total(bonus[-1]) * self.value_after
        limits = self.steps_limited[:, None] * np.array([1 + scale * np.log(task.num_actions), B_dagger, 1.0])
        return P_hat, np.stack([task.reward, B_dagger * bonus, task.utility], axis=-1), added, limits

    def _total(self, bonus: Array) -> Array:
        """Σ_{s'} P̂ of the last step, (S, A): with features Σ_i φ_i = (Λ − ρI)w, with the w of φᵀw = 1 everywhere."""
        task, model, ridge = self._listed, self.regression.model, self.regression.ridge
        if not model.is_dense:
            return 1 - ridge * bonus**2
        phi: Any = task.phi
        w = np.linalg.lstsq(phi.reshape(-1, task.dim), np.ones(task.num_states * task.num_actions), rcond=None)[0]
        total: Array = phi @ model.gram_inv[-1] @ (model.gram[-1] @ w - ridge * w)
        return total

    def _evaluate(self, tables: Tables, lam: float) -> float:
        """V̲ᵘ(s₁) of π^λ, which is left in `_table`."""
        self._table = np.empty(self._listed.reward.shape)
        V = released_pass(tables, lam, self.scales.kappa, self.entropy, self._table)
        return float(V[self._listed.initial_state, 2])


def planner_of(variant: Variant) -> type[SoftmaxPlanner]:
    """The planner by the rules of the text, or of the released code."""
    planners = {"text": SoftmaxPlanner, "released": ReleasedPlanner}
    if variant not in planners:
        raise ValueError(f'variant must be "text" or "released", got {variant!r}')
    return planners[variant]


def variant_label(name: str, variant: Variant) -> str:
    """What records call an agent that plans by these rules."""
    return name if variant == "text" else f"{name}-{variant}"
