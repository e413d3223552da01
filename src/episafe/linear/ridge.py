"""Ridge regression of next values on features: P̂_hV = φᵀΛ_h⁻¹ Σ_i φ_i V(s_{h+1}^i), β_h = ‖φ‖_{Λ_h⁻¹}.

The arrays are described in kernels/softmax_arrays.py. With one-hot features Λ is diagonal and held as counts. Where the
task is time-homogeneous all steps learn one model, from n = KH transitions.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np

from episafe.core.checks import TOLERANCE, distinct_steps
from episafe.core.errors import InvalidProblem
from episafe.core.task import OneHot, TableFeatures, Task
from episafe.core.types import Array, Episode, IntArray, State, is_outside
from episafe.kernels.lanes import padded
from episafe.kernels.softmax_arrays import (
    FIRST_SLOTS,
    Counts,
    Dense,
    Slots,
    Work,
    empty_counts,
    empty_dense,
    new_work,
    widened,
)
from episafe.kernels.softmax_learning import learn_all

REFACTOR_EVERY = 10_000  # episodes, and at each power of two below: with a small ρ the first updates lose most digits
CERTAIN = 1e9  # how often a transition that is known beforehand counts as seen


class SoftmaxModel:
    """What was learned of one task, at the states that were visited.

    Args:
        task: the task of the agent.
        ridge: ρ > 0.
        signal_scale: C_θ, scale of the bonus of reward and utility, if they are learned.
        optimistic: whether learned utilities have +C_θβ, not −C_θβ.

    Attributes:
        num_episodes: how many episodes were learned from.
        slots, arrays, work: what the kernels read and write; replaced by longer ones when they are full.
    """

    def __init__(self, task: Task, ridge: float = 1.0, signal_scale: float = 1.0, optimistic: bool = False) -> None:
        H, A = task.horizon, task.num_actions
        if H is None or A is None:
            raise TypeError("this agent plans over steps and actions: give it a problem that has them, not a Rollout")
        self.task, self.ridge, self.horizon, self.num_actions = task, ridge, H, A
        self.num_rows = 1 if task.time_homogeneous else H
        self.num_episodes = 0
        self.dim = 0 if task.one_hot else task.dim + len(task.outside)  # START and ENDED have dimensions of their own
        self._keys: list[dict[Hashable, int]] = [{} for _ in range(self.num_rows)]
        self.slots, phi = self._listed_slots() if task.is_listed else self._empty_slots()
        self._phi = phi
        shape = self.num_rows, A, phi.shape[3]
        self.arrays: Dense | Counts = empty_counts(shape, ridge) if task.one_hot else empty_dense(phi, ridge)
        self.work: Work = new_work(self.arrays, H, task.num_constraints)
        known = [task.knows_reward, *(one.utility is not None for one in task.constraints)]
        self.signals = None if all(known) else LearnedSignals(self, signal_scale, optimistic, known)
        if not task.is_listed:
            self._slot(0, task.initial_state)
            for state in task.outside:
                if not (task.random_start and state == task.initial_state):
                    self._count_as_absorbing(state)

    def _listed_slots(self) -> tuple[Slots, Array]:
        """Return slots that describe all S states, the initial state first and alone visited."""
        task, R, S, m = self.task, self.num_rows, self.task.num_states or 0, self.task.num_constraints
        order = np.argsort(np.arange(S) != task.initial_state, kind="stable")
        n, size = padded(S), np.zeros(R, dtype=np.int64)
        size[0] = 1
        given = task.reward, *(one.utility for one in task.constraints)
        told = [distinct_steps(one) if isinstance(one, np.ndarray) else None for one in given]
        steps = 1 if R == 1 and all(one is None or len(one) == 1 for one in told) else self.horizon
        signals = np.zeros((1 + m, steps, self.num_actions, n))
        for g, one in enumerate(told):
            if one is not None:
                signals[g, ..., :S] = np.moveaxis(one, 1, 2)[..., order]
        phi = np.zeros((R, self.num_actions, self.dim, n))
        if isinstance(task.features, TableFeatures):
            phi[..., :S] = np.moveaxis(task.features.phi, 0, 2)[..., order]
        state_of, slot_of = (np.tile(one, (R, 1)) for one in (widened(order, n), np.argsort(order)))
        return Slots(size, np.full(R, S), state_of, slot_of, signals[0], signals[1:]), phi

    def _empty_slots(self) -> tuple[Slots, Array]:
        R, A, n, m = self.num_rows, self.num_actions, FIRST_SLOTS, self.task.num_constraints
        size, none = np.zeros(R, dtype=np.int64), np.zeros((R, 0), dtype=np.int64)
        told = np.zeros((R, A, n)), np.zeros((m, R, A, n))
        return Slots(size, size, np.tile(np.arange(n), (R, 1)), none, *told), np.zeros((R, A, self.dim, n))

    # learning

    def observe(self, episode: Episode) -> None:
        """Learn from an episode in canonical form; one of which only totals are known teaches nothing."""
        if episode.states is None:
            return
        slots = episode.states if self.task.is_listed else self.slots_of(episode.states)
        self.observe_all(slots[None], episode.actions[None])
        if self.signals is not None:
            if self.task.is_listed:
                rows = np.minimum(np.arange(self.horizon), self.num_rows - 1)
                slots = self.slots.slot_of[rows, slots[:-1]]
            self.signals.observe(slots[: self.horizon], episode)

    def observe_all(self, states: IntArray, actions: IntArray) -> None:
        """Learn from episodes (n, H+1), (n, H) of a listed task; else from the slots of their states."""
        done, every_action = 0, bool(self.task.random_start and self.task.one_hot)
        while done < len(actions):
            stop = done + self.episodes_to_refactoring()
            part = np.ascontiguousarray(states[done:stop]), np.ascontiguousarray(actions[done:stop])
            made = int(learn_all(self.arrays, self.slots, self._phi, *part, every_action))
            self.count(made)
            done += made
            if done < min(stop, len(actions)):
                self.enlarge_transitions()

    def episodes_to_refactoring(self) -> int:
        """Return how many more episodes until Λ⁻¹ is computed again from Λ."""
        n = self.num_episodes
        return (
            min(1 << n.bit_length(), REFACTOR_EVERY) - n if n < REFACTOR_EVERY else REFACTOR_EVERY - n % REFACTOR_EVERY
        )

    def count(self, num_episodes: int) -> None:
        """Note that episodes were added; compute Λ⁻¹ again where that is due, so that rounding does not build up."""
        due = num_episodes == self.episodes_to_refactoring()
        self.num_episodes += num_episodes
        if due:
            self._refactor()

    def _refactor(self) -> None:
        if isinstance(self.arrays, Dense):
            gram = self.arrays.gram
            self.arrays.gram_inv[:] = np.linalg.inv(gram)
            self.arrays.log_det[:] = np.linalg.slogdet(gram)[1] - gram.shape[1] * math.log(self.ridge)

    def information(self) -> Array:
        """Return ln det Λ_h/ρ, (H,)."""
        return np.broadcast_to(self.arrays.log_det, self.horizon)

    def enlarge_transitions(self) -> None:
        """Double the capacity for transitions."""
        if isinstance(self.arrays, Counts):
            M = 2 * self.arrays.times.shape[1]
            own = self.arrays
            following, source, target = (widened(array, M) for array in (own.following, own.source, own.target))
            self.arrays = own._replace(following=following, source=source, target=target, times=widened(own.times, M))
            self.work = new_work(self.arrays, self.horizon, self.task.num_constraints)

    # states that are not listed

    def row(self, h: int) -> int:
        """Return the row of step h."""
        return min(h, self.num_rows - 1)

    def slots_of(self, states: Sequence[State]) -> IntArray:
        """Return the slots (H+1,) of the states of an episode; new states are described."""
        found = np.zeros(self.horizon + 1, dtype=np.int64)
        for h, state in enumerate(states if self.num_rows < self.horizon else states[: self.horizon]):
            found[h] = self._slot(min(h, self.num_rows - 1), state)
        return found

    def find(self, h: int, state: State) -> int:
        """Return the slot of a state, −1 if it was never seen in the row of step h."""
        return self._keys[self.row(h)].get(self.task.key(state), -1)

    def _slot(self, p: int, state: State) -> int:
        """Return the slot of a state in row p; a new state is described by what the task tells of it."""
        task, known, key = self.task, self._keys[p], self.task.key(state)
        slot = known.get(key)
        if slot is None:
            slot = known[key] = len(known)
            if slot >= self.slots.reward.shape[-1]:
                self._enlarge_slots()
            if self.dim:
                self._phi[p, :, :, slot] = self.phi(state)
            if is_outside(state) or self.signals is None or any(self.signals.known):  # else 0, and learned
                self.slots.reward[p, :, slot] = np.nan_to_num(task.reward_at(p, state))
                self.slots.utility[:, p, :, slot] = np.nan_to_num(task.utility_at(p, state))
            self.slots.size[p] += 1
        elif task.knows_utility and isinstance(task.features, OneHot) and task.features.cell and not is_outside(state):
            here, there = task.utility_at(p, state), self.slots.utility[:, p, :, slot]
            if np.abs(here - there).max() > TOLERANCE:
                raise InvalidProblem(
                    f"the utility at step {p}, state {state!r} is {here}, but {there} in another state of its cell: "
                    "use finer cells, or omit the utility so that it is learned"
                )
        return slot

    def phi(self, state: State) -> Array:
        """Return φ(state, ·), shape (A, d), with one more dimension for each state outside."""
        phi, task = np.zeros((self.num_actions, self.dim)), self.task
        if is_outside(state):
            phi[:, task.dim + list(task.outside).index(state)] = 1.0
        else:
            phi[:, : task.dim] = task.phi(state)
        return phi

    def _enlarge_slots(self) -> None:
        """Double the capacity for slots."""
        n = 2 * self.slots.reward.shape[-1]
        phi = self._phi = widened(self._phi, n)
        reward, utility = widened(self.slots.reward, n), widened(self.slots.utility, n)
        state_of = np.tile(np.arange(n), (self.num_rows, 1))
        self.slots = self.slots._replace(state_of=state_of, reward=reward, utility=utility)
        if isinstance(self.arrays, Dense):
            self.arrays = self.arrays._replace(phi=phi, moments=widened(self.arrays.moments, n))
        else:
            visits, first = widened(self.arrays.visits, n), widened(self.arrays.first, n, -1)
            self.arrays = self.arrays._replace(visits=visits, first=first)
        self.work = new_work(self.arrays, self.horizon, self.task.num_constraints)
        if self.signals is not None and self.task.one_hot:
            self.signals.sums = widened(self.signals.sums, n)

    def _count_as_absorbing(self, state: tuple[str]) -> None:
        """Enter that a state leads to itself, from the second step on, for every action: known, not learned."""
        rows = [0] if self.num_rows < self.horizon else list(range(1, self.horizon))
        slots = [self._slot(p, state) for p in rows]
        following = slots if self.num_rows < self.horizon else [*slots[1:], 0]
        while isinstance(self.arrays, Counts) and self.arrays.times.shape[1] < 2 * self.num_actions:
            self.enlarge_transitions()
        for p, i, j in zip(rows, slots, following, strict=False):  # with one step there is no second
            if isinstance(self.arrays, Dense):
                x = self._phi[p, 0, :, i]
                self.arrays.gram[p] += CERTAIN * np.outer(x, x)
                self.arrays.moments[p, :, j] += CERTAIN * x
                continue
            own = self.arrays
            own.visits[p, :, i] += CERTAIN
            own.log_det[p] += self.num_actions * math.log1p(CERTAIN / self.ridge)
            for a in range(self.num_actions):
                t = int(own.num_transitions[p])
                own.num_transitions[p] += 1
                own.source[p, t], own.target[p, t], own.times[p, t] = i * self.num_actions + a, j, CERTAIN
                own.following[p, t], own.first[p, a, i] = -1, t
        self._refactor()

    # what NumPy code reads, at the states described: those visited, or all where the states are listed

    def features(self, h: int) -> Array:
        """Return φ (A, n, d) at the described states; for features that are not one-hot."""
        p = self.row(h)
        return np.moveaxis(self._phi[p, :, :, : self.slots.described[p]], 1, 2)

    def gram(self, h: int) -> Array:
        """Return Λ_h = ρI + Σ_i φ_i φ_iᵀ, (d, d); its diagonal n(s,a) + ρ, (A, n), with one-hot features."""
        p, own = self.row(h), self.arrays
        return own.gram[p] if isinstance(own, Dense) else own.visits[p, :, : self.slots.described[p]] + self.ridge

    def target_sums(self, h: int, V: Array) -> Array:
        """Return Σ_i φ_i V(s_{h+1}^i), (G, d), of values V (G, n') at the next states; (G, A, n) with one-hot features.

        After the last step V is (G, 1): one value for all states.
        """
        p, own, A = self.row(h), self.arrays, self.num_actions
        if h == self.horizon - 1:
            V = np.broadcast_to(V, (len(V), self.slots.reward.shape[-1]))
        if isinstance(own, Dense):
            return V @ own.moments[p, :, : V.shape[-1]].T
        M, total = own.num_transitions[p], np.zeros((len(V), A, int(self.slots.described[p])))
        source, target = own.source[p, :M], own.target[p, :M]
        for one, values in zip(total, own.times[p, :M] * V[:, target], strict=True):
            np.add.at(one, (source % A, source // A), values)
        return total

    def bonus(self, h: int) -> Array:
        """Return β_h = ‖φ‖_{Λ_h⁻¹} at the described states, (A, n)."""
        if isinstance(self.arrays, Counts):
            return np.asarray(1 / np.sqrt(self.gram(h)))
        phi = self.features(h)
        return np.sqrt(np.maximum(np.einsum("ank,kl,anl->an", phi, self.arrays.gram_inv[self.row(h)], phi), 0.0))

    def next_value(self, h: int, V: Array) -> Array:
        """Return P̂_hV at the described states, (G, A, n), of values V (G, n') at those of the next step."""
        total = self.target_sums(h, V)
        if isinstance(self.arrays, Counts):
            return total / self.gram(h)
        return np.einsum("ank,gk->gan", self.features(h), total @ self.arrays.gram_inv[self.row(h)])

    def shaped_bonuses(self, h: int, V: Array, beta: Array, PV: Array, curve: float, spread: float) -> Array:
        """Return β(1 − spread + spread·σ) + curve·β² of each value, (G, A, n): β itself at 0 and 0, the paper's.

        σ² = P̂V² − (P̂V)² with one-hot features, else 1. The compensation † has the largest of the utilities'.
        """
        sigma = np.ones((len(V), *beta.shape))
        if spread and isinstance(self.arrays, Counts):
            sigma = np.sqrt(np.maximum(self.next_value(h, V**2) - PV**2, 0.0))
            sigma[1] = sigma[2:].max(axis=0)
        return beta * (1 - spread + spread * sigma + curve * beta)

    def told(self, h: int) -> tuple[Array, Array]:
        """Return the reward (A, n) and the utilities (m, A, n) at the described states."""
        n, s = int(self.slots.described[self.row(h)]), min(h, len(self.slots.reward) - 1)
        return self.slots.reward[s, :, :n], self.slots.utility[:, s, :, :n]

    def by_state(self, tables: Sequence[Array]) -> Array:
        """Return a table (H, S, A) from rows (A, n) at the described states; (H, n, A) where they are not listed."""
        made = np.zeros((self.horizon, self.slots.reward.shape[-1], self.num_actions))
        for h, rows in enumerate(tables):
            made[h, self.slots.state_of[self.row(h), : rows.shape[1]]] = rows.T
        return made[:, : self.task.num_states]

    def estimate_signals(self, curve: float = 0.0, missing: float = 0.0) -> None:
        """Write r̄ and u̲ where reward and utility are learned; with counts β is not shaped (`LearnedSignals.fill`)."""
        if self.signals is not None:
            betas = [self.bonus(p) for p in range(self.num_rows)]
            self.signals.fill([beta * (1 + curve * beta) if self.dim else beta for beta in betas], missing)


class LearnedSignals:
    """Reward and utilities that the task does not know, regressed on features like next values.

        θ̂_h = Λ_h⁻¹ Σ_i φ_i x_i        r̄_h = clip{φᵀθ̂ʳ + C_θ β, 0, 1}        u̲_h = clip{φᵀθ̂ᵘ − C_θ β, 0, 1}

    The planner reads r̄ and u̲ where it would read r and u. For signals without noise, one-hot features and ρ = 1 the
    error is at most β, so that C_θ = 1 is enough; noise in [0, 1] needs √(ρd) + ½√((d ∨ 2) ln((1 + K/ρ)/δ)).

    Attributes:
        sums: Σ φ x of each row, (R, 1+m, d); (R, 1+m, A, n) with counts.
    """

    def __init__(self, model: SoftmaxModel, scale: float, optimistic: bool, known: list[bool]) -> None:
        self._model, self.known = model, known
        self.scales = np.array([scale, *[scale if optimistic else -scale] * (len(known) - 1)])
        R, A, d, n = model._phi.shape
        self.sums: Array = np.zeros((R, len(known), d) if d else (R, len(known), A, n))

    def observe(self, slots: IntArray, episode: Episode) -> None:
        """Add the signals of an episode, whose states have `slots` (H,)."""
        seen = np.empty((len(episode.actions), len(self.known)))
        seen[:, 0], seen[:, 1:] = episode.rewards, episode.utilities
        inside = [h for h, state in enumerate(episode.states[: len(slots)]) if not is_outside(state)]
        rows = np.minimum(np.array(inside, dtype=np.int64), self._model.num_rows - 1)
        if self.sums.ndim == 4:
            at = rows[:, None], np.arange(seen.shape[1]), episode.actions[inside, None], slots[inside, None]
            np.add.at(self.sums, at, seen[inside])
            return
        for h, p in zip(inside, rows.tolist(), strict=True):
            self.sums[p] += np.outer(seen[h], self._model._phi[p, episode.actions[h], :, slots[h]])

    def fill(self, bonus: Sequence[Array], missing: float) -> None:
        """Write r̄ and u̲ at all slots, from the bonuses (A, n) of each row.

        With counts θ̂ᵘ = (Σ x + missing)/(n + ρ): `missing` is ρ where next values count the loss of what is missing.
        """
        slots, own, R = self._model.slots, self._model.arrays, self._model.num_rows
        outside = [[self._model.find(p, state) for state in self._model.task.outside] for p in range(R)]
        for s in range(len(slots.reward)):
            p = min(s, R - 1)
            n = int(slots.described[p])
            beta, inside = bonus[p], np.setdiff1d(np.arange(n), outside[p])
            if isinstance(own, Dense):
                mean = np.einsum("akn,gk->gan", own.phi[p, :, :, :n], self.sums[p] @ own.gram_inv[p])
            else:
                mean = self.sums[p, ..., :n] * beta**2
                mean[1:] += missing * beta**2
            for g, known in enumerate(self.known):
                if not known:
                    out = slots.reward[s] if g == 0 else slots.utility[g - 1, s]
                    out[:, inside] = np.clip(mean[g] + self.scales[g] * beta, 0.0, 1.0)[:, inside]

    def estimate(self, theta: Array, phi: Array, beta: Array, told: Array) -> Array:
        """Return r̄ and u̲ (1+m, A) at one state: theta (1+m, d), phi (A, d), β (A,); what is known stays."""
        found = np.clip(theta @ phi.T + self.scales[:, None] * beta, 0.0, 1.0)
        return np.where(np.array(self.known)[:, None], told, found)
