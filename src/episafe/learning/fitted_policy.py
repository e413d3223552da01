"""π^λ at any state, by what it keeps of the regression it was evaluated on; what is learned later changes nothing.

features:  gram_inv (H, d, d), weights (H, 3, d), theta: θ̂ (H, 2, d) of learned reward and utility, (0, 2, d) if told
counts:    size (H,) slots, bonus (H, A, n), P̂V = Q (H, 3, A, n), reward and utility (H, A, n), n = 0 if the task
           lists its states
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from episafe.kernels import softmax_actions
from episafe.kernels.backward_pass import visit_bonus
from episafe.kernels.lanes import padded
from episafe.kernels.model_arrays import Scales, widened
from episafe.problems.states import Outside, sealed
from episafe.storage.json_values import as_text
from episafe.types import Array

if TYPE_CHECKING:
    from episafe.learning.regression import AnyRegression

UNSEEN = -1  # in place of a slot
NO_TABLE = "a task given by functions has no table of states: use probabilities(h, state)"

Kept = dict[str, Any]  # arrays by the names above


class FittedFeatures:
    """π^λ from β = ‖φ‖_{Λ⁻¹} and P̂V = φᵀw; room for d up to a multiple of eight.

    Of the regression the task, what is `known` of it and its signals are read.
    """

    def __init__(self, regression: Any, scales: Scales, lam: float, kept: Kept) -> None:
        self._task, self._known, self._signals = regression.task, regression.known, regression.signals
        self.scales, self._lam = scales, lam
        H, _, d = kept["weights"].shape
        self._gram_inv = np.zeros((H, padded(d), padded(d)))
        self._gram_inv[:, :d, :d] = kept["gram_inv"]
        self._weights = widened(kept["weights"], padded(d))
        self.kept = kept | {"gram_inv": self._gram_inv[:, :d, :d], "weights": self._weights[:, :, :d]}

    def probabilities(self, h: int, state: Any) -> Array:
        """π^λ_h(·|state), shape (A,)."""
        task = self._task
        task.require_state(task.asked_at(state))
        phi = task.features(state)
        told = task.reward_at(h, state), task.utility_at(h, state)
        if self._signals is not None and self._signals.estimates(state):
            told = self._signals.estimate(self.kept["theta"][h], self.kept["gram_inv"][h], phi, told)
        return softmax_actions.act(h, phi, *told, self._gram_inv, self._weights, self.scales, self._lam)

    def table(self) -> Array:
        """π^λ (H, S, A) at every state of a finite task."""
        task = self._task
        if not task.is_listed:
            raise ValueError(NO_TABLE)
        table = np.empty(task.reward.shape)
        softmax_actions.feature_table(self._known, self._gram_inv, self._weights, self.scales, self._lam, table)
        return table

    def as_json(self) -> dict[str, Any]:
        """What it keeps, as plain values."""
        kept = {name: array.tolist() for name, array in self.kept.items()}
        return {"kind": "softmax", **facts_as_json(self._task, self._signals, self.scales, self._lam), **kept}


class FittedSlots:
    """π^λ from tables over the slots of one moment, for one-hot features.

    At states seen later or never β = ρ^{-1/2} and P̂V = 0; unknown reward and utility are there what C_θ β leaves.
    """

    def __init__(self, regression: "AnyRegression", scales: Scales, lam: float, kept: Kept) -> None:
        self._regression, self.scales, self._lam, self.kept = regression, scales, lam, kept
        self._sizes = kept["size"].tolist()
        self._rows: list[dict[int, Array]] = [{} for _ in self._sizes]  # π at the slots that were met, at UNSEEN ones
        self._unseen_are_alike = len(regression.task.unknown) == 2 and regression.signals is not None

    @cached_property
    def _elsewhere(self) -> tuple[float, float]:
        """β and its bonus at states never seen."""
        ridge = self._regression.ridge
        return float(visit_bonus(0.0, ridge)), float(softmax_actions.unseen_bonus(ridge, self.scales))

    def probabilities(self, h: int, state: Any) -> Array:
        """π^λ_h(·|state), shape (A,), read-only."""
        slot, rows = self._regression.slot(h, state), self._rows[h]
        if not 0 <= slot < self._sizes[h]:
            if type(state) is Outside or not self._unseen_are_alike:
                return self._unseen(h, state)
            task = self._regression.task
            task.require_state(task.asked_at(state))
            slot = UNSEEN
        found = rows.get(slot)
        if found is None:
            found = rows[slot] = sealed(self._unseen(h, state) if slot == UNSEEN else self._at_slot(h, slot, state))
        return found

    def along(self, steps: Sequence[tuple[int, Any, int]]) -> list[float]:
        """π^λ_h(a_h|s_h) at the steps (h, s_h, a_h) of an episode, as `probabilities` has them."""
        slot, found = self._regression.slot, []
        for h, state, action in steps:
            row = self._rows[h].get(slot(h, state))
            found.append((self.probabilities(h, state) if row is None else row)[action])
        return found

    def _at_slot(self, h: int, slot: int, state: Any) -> Array:
        kept, task = self.kept, self._regression.task
        if task.is_listed:
            told = task.reward_at(h, state), task.utility_at(h, state)
        else:
            told = kept["reward"][h, :, slot], kept["utility"][h, :, slot]
        rows = map(np.ascontiguousarray, (*told, kept["bonus"][h, :, slot], kept["Q"][h, :, :, slot]))
        return softmax_actions.act_on(*rows, self.scales, self._lam, len(self._sizes) - 1 - h)

    def _unseen(self, h: int, state: Any) -> Array:
        known = self._regression
        return act_unseen(known.task, known.signals, self._elsewhere, self.scales, self._lam, (h, state))

    def table(self) -> Array:
        """π^λ (H, S, A) at every state of a finite task."""
        known, kept = self._regression, self.kept
        if not known.is_listed:
            raise ValueError(NO_TABLE)
        table, slots = np.empty(known.task.reward.shape), (known.state_of, kept["size"])
        told = known.known, slots, kept["bonus"], kept["Q"], self._elsewhere[1]
        softmax_actions.count_table(*told, self.scales, self._lam, table)
        return table

    def as_json(self) -> dict[str, Any]:
        """Its rows at the states that were met, by their keys, and what it does elsewhere; for states by name."""
        known = self._regression
        rows = [
            {as_text(name): self._at_slot(h, slot, None).tolist() for slot, name in enumerate(names[: self._sizes[h]])}
            for h, names in enumerate(known.names())  # type: ignore[union-attr]
        ]
        facts = facts_as_json(known.task, known.signals, self.scales, self._lam)
        return {"kind": "rows", **facts, **dict(zip(("beta", "bonus"), self._elsewhere, strict=True)), "rows": rows}


def act_unseen(
    task: Any, signals: Any, elsewhere: tuple[float, float], scales: Scales, lam: float, place: tuple[int, Any]
) -> Array:
    """π^λ at a step and a state that was never met: β and its bonus are those of `elsewhere`, and P̂V = 0."""
    (beta, bonus), (h, state), A = elsewhere, place, task.num_actions
    task.require_state(task.asked_at(state))
    told = task.reward_at(h, state), task.utility_at(h, state)
    if signals is not None and signals.estimates(state):
        told = signals.clipped(np.zeros((2, A)), np.full(A, beta), told)
    values = (*map(np.ascontiguousarray, told), np.full(A, bonus), np.zeros((3, A)))
    return softmax_actions.act_on(*values, scales, lam, task.horizon - 1 - h)


def facts_as_json(task: Any, signals: Any, scales: Scales, lam: float) -> dict[str, Any]:
    """What both kinds say of task, λ and constants, as plain values."""
    several = {"utility_weights": list(task.utility_weights)} if task.utility_weights else {}
    return several | {
        "horizon": task.horizon,
        "num_actions": task.num_actions,
        "lam": lam,
        "scales": scales.said(),
        "learned": list(task.unknown),
        "signal_scales": [0.0, 0.0] if signals is None else list(signals.scales),
        "outside": {state.value: list(told) for state, told in task.outside.items()},
    }


Fitted = FittedFeatures | FittedSlots


def kept_now(regression: "AnyRegression", scales: Scales) -> Kept:
    """What a policy keeps of the values that the last decision left."""
    model, support, work, signals = regression.model, regression.support, regression.work, regression.signals
    if model.is_dense:
        theta = np.zeros((0, 2, model.gram.shape[1])) if signals is None else signals.theta(model.gram_inv)
        return {"gram_inv": model.gram_inv.copy(), "weights": work.rest[2].copy(), "theta": theta}
    H, A, n = work.bonus.shape
    bonus, Q = np.zeros((H, A, n)), np.zeros((H, 3, A, n))
    softmax_actions.count_values(support.size, work, scales, bonus, Q)
    told = (np.zeros((H, A, 0)) if regression.is_listed else g.copy() for g in (support.reward, support.utility))
    return dict(zip(("size", "bonus", "Q", "reward", "utility"), (support.size.copy(), bonus, Q, *told), strict=True))
