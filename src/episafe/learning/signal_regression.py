"""Reward and utility that the task does not tell, regressed on features like next values.

    θ̂_h = Λ_h⁻¹ Σ_i φ_i x_i        r̄_h = clip{φᵀθ̂ʳ + C_θ β, 0, 1}        u̲_h = clip{φᵀθ̂ᵘ − C_θ β, 0, 1}

x is the reward or the utility seen, with the same Λ and β as next values. The planner then reads r̄ and u̲ where it would
read r and u: optimistic, pessimistic, and each clipped by itself. Where steps share their data the sums are over all
steps. With one-hot features Λ is diagonal and θ̂ is Σ x/(n + ρ). For signals without noise, one-hot features and ρ = 1
the error is at most β, so C_θ = 1 is enough; noise in [0, 1] needs `theory_scale`, much larger. Only the first has been
proved to be enough for what it says.
"""

import math
from typing import Any

import numpy as np

from episafe.kernels.backward_pass import elliptical_bonus
from episafe.kernels.model_arrays import Support, Work, widened
from episafe.problems.sampled_problem import SampledTask
from episafe.types import Array, IntArray

Pair = tuple[Array, Array]  # of the reward, of the utility


def theory_scale(dim: int, num_episodes: int, delta: float, ridge: float = 1.0) -> float:
    """C_θ = √(ρd) + ½√((d ∨ 2) ln((1 + K/ρ)/δ)): valid at all episodes with probability 1 − δ if the signal is linear.

    Of one signal in [0, 1] at one step; for reward and utility at all steps together give δ/(2H), and where steps share
    their data KH for K and δ/2. The determinant gives d ln(1 + K/(ρd)) + 2 ln(1/δ), which is less from d = 2 on.
    """
    return math.sqrt(ridge * dim) + 0.5 * math.sqrt(max(dim, 2) * math.log((1 + num_episodes / ridge) / delta))


class Signals:
    """Σ φ x of each step, of the rewards (0) and utilities (1) seen: (H, 2, d), or by slot (H, 2, A, n) for counts."""

    def __init__(self, task: SampledTask, scale: float, pessimistic: bool) -> None:
        self.learned = [g for g, name in enumerate(("reward", "utility")) if name in task.unknown]
        self.scales = (scale, -scale if pessimistic else scale)
        shape = (task.num_actions, 0) if task.one_hot else (task.dim,)
        self.sums: Array = np.zeros((task.horizon, 2, *shape))
        self.shared = task.time_homogeneous
        self._task = task

    def observe(self, phi: Array, slots: IntArray, actions: IntArray, seen: Array) -> None:
        """Add the rewards and utilities `seen` (H, 2) of one episode: phi (H, A, d, n), d = 0 for counts."""
        if self.sums.ndim == 3:
            for h, (slot, action) in enumerate(zip(slots, actions, strict=True)):
                served = slice(None) if self.shared else slice(h, h + 1)  # the steps that this one counts for
                self.sums[served] += np.outer(seen[h], phi[h, action, :, slot])
        elif self.shared:  # all steps have the same sums
            np.add.at(self.sums[0], (slice(None), actions, slots), seen.T)  # type: ignore[arg-type]  # a slice is one
            self.sums[1:, :, actions, slots] = self.sums[0][:, actions, slots]
        else:
            self.sums[np.arange(len(slots)), :, actions, slots] += seen

    def fill(self, model: Any, support: Support, work: Work, missing: float) -> None:
        """Write r̄ and u̲ at all slots into `support`, from the bonuses in `work`.

        With counts θ̂ᵘ = (Σ x + m)/(n + ρ): m = 0, or ρ where the next value has the loss of what is missing.
        """
        if self.sums.ndim == 4:
            self._fill_counted(support, work.bonus, missing)
            return
        for h, n in enumerate(support.size):
            mean = np.einsum("akn,gk->gan", model.phi[h, :, :, :n], self.sums[h] @ model.gram_inv[h])
            known = support.reward[h, :, :n], support.utility[h, :, :n]
            support.reward[h, :, :n], support.utility[h, :, :n] = self.clipped(mean, work.bonus[h, :, :n], known)

    def _fill_counted(self, support: Support, bonus: Array, missing: float) -> None:
        """All steps at once: θ̂ = Σ x/(n + ρ) = Σ x·β² at the slots in use; of the utility with what is missing."""
        most = int(support.size.max())
        used = np.arange(most) < support.size[:, None, None]
        beta = bonus[:, :, :most]
        for g, told in enumerate((support.reward, support.utility)):
            if g in self.learned:
                mean = (self.sums[:, g, :, :most] + g * missing) * beta**2
                np.copyto(told[:, :, :most], np.clip(mean + self.scales[g] * beta, 0.0, 1.0), where=used)

    def estimates(self, state: Any) -> bool:
        """Whether anything is estimated at this state: not outside, where the task tells all."""
        return self._task.key(state) not in self._task.outside

    def theta(self, gram_inv: Array) -> Array:
        """θ̂ (H, 2, d) as of now; gram_inv (H, d, d)."""
        return np.einsum("hkm,hgm->hgk", gram_inv, self.sums)

    def estimate(self, theta: Array, gram_inv: Array, phi: Array, known: Pair) -> Pair:
        """r̄_h and u̲_h at one state with features φ (A, d): theta (2, d), gram_inv (d, d)."""
        return self.clipped(theta @ phi.T, elliptical_bonus(phi, gram_inv), known)

    def clipped(self, mean: Array, bonus: Array, known: Pair) -> Pair:
        """r̄ and u̲ from φᵀθ̂ (2, …) and β (…); what is known stays."""
        estimates = [np.clip(mean[g] + self.scales[g] * bonus, 0.0, 1.0) for g in range(2)]
        reward, utility = (estimates[g] if g in self.learned else known[g] for g in range(2))
        return reward, utility

    def widen(self, n: int) -> None:
        """Room for n slots."""
        if self.sums.ndim == 4:
            self.sums = widened(self.sums, n)
