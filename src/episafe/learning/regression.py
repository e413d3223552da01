"""Ridge regression of next values on features, per step: P̂_hV = φᵀΛ_h⁻¹ Σ_i φ_i V(s_{h+1}^i), β_h = ‖φ‖_{Λ_h⁻¹}.

A `Regression` keeps the visited states and the model on them, in arrays that the kernels read and write; a `Fitted` is
frozen and answers at any state.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Literal

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import InvalidProblem
from episafe.kernels import decision, model_arrays, model_update
from episafe.kernels.backward_pass import visit_bonus
from episafe.kernels.model_arrays import FIRST_SLOTS, Known, Scales, Support, Visited, room_to_plan, widened
from episafe.kernels.table_passes import count_tables
from episafe.learning import shared_steps
from episafe.learning.fitted_policy import Fitted, FittedFeatures, FittedSlots, Kept, kept_now
from episafe.learning.signal_regression import Signals
from episafe.problems.sampled_problem import AnyTask, SampledTask
from episafe.problems.task import Task
from episafe.types import Array, IntArray

REFACTOR_EVERY = 10_000  # episodes, and at each power of two below: with a small ρ the first updates lose most digits
CERTAIN = 1e9  # times that a transition which is known beforehand counts as seen


class Regression(ABC):
    """All that is learned, and the room to plan in, whatever the states are.

    `support`, `phi`, `model` and `work` are plain arrays, described in model_arrays.py. They are written in place, and
    replaced by longer ones when they are full. Where the task is time-homogeneous, one model is learned for all steps
    (see shared_steps.py).
    """

    signals: Signals | None = None
    known: Known | None = None

    def __init__(self, task: AnyTask, ridge: float) -> None:
        H, A, n = task.horizon, task.num_actions, FIRST_SLOTS
        self.task = task
        self.ridge, self.shared, self.one_hot = ridge, task.time_homogeneous, task.one_hot
        self.support = Support(np.zeros(H, dtype=np.int64), np.zeros((H, A, n)), np.zeros((H, A, n)))
        self.phi: Array = np.zeros((H, A, 0 if task.one_hot else task.dim, n))
        self.model = (
            model_arrays.count_model((H, A, n), ridge) if task.one_hot else model_arrays.dense_model(self.phi, ridge)
        )
        self.work = room_to_plan(self.model, n, found=np.full(1, np.nan))
        self.num_episodes = 0

    @abstractmethod
    def slots(self, states: Any) -> IntArray:
        """Slots (H,) of the states of one episode; new states are described in new slots, for which there is room.

        Where steps share their data also that of the state after the last one, (H+1,).
        """

    @abstractmethod
    def slot(self, h: int, state: Any) -> int:
        """The slot of a state, −1 if it was never seen at this step."""

    @property
    def start_values(self) -> Array:
        """V̄ʳ, V̄†, V̲ᵘ at the initial state of the λ evaluated last, shape (3,)."""
        V = self.work.V
        return V[0, :, 0] if self.model.is_dense else V[0, 0, :, self.work.lane[0]]

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode: states (H+1,), actions (H,)."""
        while self.is_full():
            self.enlarge()
        absorb = shared_steps.absorb_episode if self.shared else model_update.absorb
        absorb(self.model, self.slots(states), actions)
        self.count(1)

    def observe_signals(self, actions: IntArray, seen: Array) -> None:  # most need none
        """Add the rewards and utilities `seen` (H, 2) of the episode observed last, where they are not known."""

    def prepare(self, scales: Scales) -> None:
        """Write what a decision reads and episodes have changed: the one model of all steps, where they share it."""
        if self.shared:
            shared_steps.spread(self.model)

    def expected(self, h: int, V: Array) -> Array:
        """P̂_hV (g, A, n) at the slots of step h, of values V (g, n') at those of step h+1; as of the last `refresh`."""
        model, n, A = self.model, int(self.support.size[h]), self.task.num_actions
        if model.is_dense:
            weights = V @ model.moments[h, :, : V.shape[1]].T @ model.gram_inv[h]
            return np.einsum("akn,gk->gan", model.phi[h, :, :, :n], weights)
        start, column, share = (rows[h] for rows in self.work.rest)
        entries = np.diff(start[:, : n + 1], axis=1).ravel()
        owner, m = np.repeat(np.arange(A * n), entries), int(entries.sum())
        sums = [np.bincount(owner, share[:m] * values[column[:m]], A * n).reshape(A, n) for values in V]
        return np.array(sums)

    def count(self, num_episodes: int) -> None:
        """Note that so many episodes were added, none of them beyond the next refactoring."""
        due = num_episodes == episodes_to_refactoring(self.num_episodes)
        self.num_episodes += num_episodes
        if due:
            self.refactor()

    def refactor(self) -> None:
        """Compute Λ⁻¹ and ln det Λ afresh from Λ, so that rounding cannot build up."""
        model: Any = self.model  # of counts where features are one-hot
        if not self.one_hot:
            learned = slice(1 if self.shared else None)
            model.gram_inv[learned] = np.linalg.inv(model.gram[learned])
            model.log_det[:] = np.linalg.slogdet(model.gram[learned])[1] - model.gram.shape[1] * np.log(self.ridge)

    def is_full(self) -> bool:
        """Whether one more episode might not fit: `model_update.is_full`, where to hand a model over costs more."""
        size: list[int] = self.support.size.tolist()
        model: Any = self.model  # of counts where features are one-hot
        ahead = len(size) + 1 if self.shared else 1  # where steps share it all, an episode adds up to H+1 states
        if max(size) + ahead > self.phi.shape[3]:
            return True
        return bool(self.one_hot and max(model.num_transitions.tolist()) + ahead > model.times.shape[1])

    def enlarge(self) -> None:
        """Double the room for slots and for transitions."""
        n = 2 * self.phi.shape[3]
        self.phi = widened(self.phi, n)
        self.support = Support(self.support.size, widened(self.support.reward, n), widened(self.support.utility, n))
        model = self.model
        if model.is_dense:
            self.model = model._replace(phi=self.phi, moments=widened(model.moments, n))
        else:
            m = 2 * model.times.shape[1]
            self.model = model._replace(
                visits=widened(model.visits, n),
                first=widened(model.first, n, -1),
                following=widened(model.following, m),
                target=widened(model.target, m),
                times=widened(model.times, m),
            )
        self.work = room_to_plan(self.model, n, self.work.found)


class FiniteRegression(Regression):
    """For a finite task: `slot_of` (H, S), −1 for unseen states, and `state_of` (H, n) are arrays too."""

    is_listed: ClassVar[Literal[True]] = True
    task: Task

    def __init__(self, task: Task, ridge: float) -> None:
        super().__init__(task, ridge)
        self.known: Known = model_arrays.known_arrays(task.reward, task.utility, task.phi)
        self.slot_of: IntArray = np.full((task.horizon, task.num_states), -1)
        self.state_of: IntArray = np.zeros((task.horizon, FIRST_SLOTS), dtype=np.int64)
        start = np.full(task.horizon + 1 if self.shared else 1, task.initial_state)
        self._enter(start, np.zeros_like(start))  # slot 0 of step 0 is the initial state, whatever is learned first

    @property
    def visited(self) -> Visited:
        """The visited states, as the kernels read and write them."""
        return Visited(self.known, self.slot_of, self.state_of, self.support, self.phi)

    def slots(self, states: Any) -> IntArray:
        """Slots (H,) of the states of one episode, (H+1,) where steps share their data."""
        found = np.empty(self.task.horizon + int(self.shared), dtype=np.int64)
        self._enter(states, found)
        return found

    def _enter(self, states: Any, slots: IntArray) -> None:
        enter = model_update.enter_all_steps if self.shared else model_update.enter
        enter(self.visited, states, slots)

    def observe_all(self, states: IntArray, actions: IntArray) -> None:
        """`observe` of each of these episodes: states (n, H+1), actions (n, H)."""
        if self.shared and self.model.is_dense:
            for one in zip(states, actions, strict=True):
                self.observe(*one)
            return
        take_in = model_update.count_all_in_one if self.shared else model_update.take_in_all
        done = 0
        while done < len(actions):
            while self.is_full():
                self.enlarge()
            ahead = slice(done, done + episodes_to_refactoring(self.num_episodes))
            made = int(take_in(self.visited, self.model, states[ahead], actions[ahead]))
            self.count(made)
            done += made
        if self.shared:
            self.model.log_det[:] = self.model.log_det[0]

    def tables(self) -> tuple[Array, Array]:
        """P̂_h(s'|s,a) and β_h(s,a) at every state, (H, S, A, S) and (H, S, A), as of the last `prepare`.

        one-hot:   P̂ = n(s,a,s')/(n(s,a) + ρ),        β = (n(s,a) + ρ)^{-1/2}
        features:  P̂ = φ(s,a)ᵀ Λ⁻¹ Σ φ_i 1{s' = s_i},  β = ‖φ(s,a)‖_{Λ⁻¹}
        """
        (H, S, A), phi, model, size = self.task.reward.shape, self.task.phi, self.model, self.support.size
        P_hat, beta = np.zeros((H, S, A, S)), np.full((H, S, A), visit_bonus(0.0, self.ridge))
        if not model.is_dense or phi is None:
            count_tables(model, size, self.state_of, P_hat, beta)
            return P_hat, beta
        for h in range(H):
            weights = phi @ model.gram_inv[h]
            beta[h] = np.sqrt(np.maximum((weights * phi).sum(axis=-1), 0))
            if h + 1 < H:
                following = self.state_of[h + 1, : size[h + 1]]
                P_hat[h][..., following] = weights @ model.moments[h, :, : len(following)]
        return P_hat, beta

    def enlarge(self) -> None:
        """Double the room for slots and for transitions."""
        super().enlarge()
        self.state_of = widened(self.state_of, self.phi.shape[3])

    def slot(self, h: int, state: Any) -> int:
        """The slot of a state, −1 if it was never seen at this step."""
        return int(self.slot_of[h, state])


class SampledRegression(Regression):
    """For a task given by functions: slots are found by the states' keys; nothing has the size of the state space.

    That an episode which ended stays so is known and not learned: states outside that are no start begin with `CERTAIN`
    visits.
    """

    is_listed: ClassVar[Literal[False]] = False
    task: SampledTask

    def __init__(self, task: SampledTask, ridge: float, signals: Signals | None) -> None:
        super().__init__(task, ridge)
        self.signals = signals
        self._tells_by_cells = task.cell_function is not None and "utility" not in task.unknown
        self._slot_of: list[dict[Hashable, int]] = [{} for _ in range(task.horizon)]
        if self.shared:
            self._slot_of = task.horizon * self._slot_of[:1]
        self._outside_slots: IntArray = np.full((len(task.outside), task.horizon), -1)  # where those were not seen
        self._last_slots: IntArray = np.zeros(0, dtype=np.int64)  # of the episode that was looked up last
        self._describe(0, task.initial_state, task.key(task.initial_state))
        if signals is not None:
            signals.widen(FIRST_SLOTS)
        for state in task.outside:
            if state is not task.initial_state:
                self._know_to_stay(state)

    def slots(self, states: Any) -> IntArray:
        """Slots (H,) of the states of one episode, (H+1,) where steps share their data."""
        key, outside, found = self.task.key, self.task.outside, []
        for t, state in enumerate(states if self.shared else states[: self.task.horizon]):
            h, name = 0 if self.shared else t, key(state)
            slot = self._slot_of[h].get(name, -1)
            if slot < 0:
                slot = self._describe(h, state, name)
            elif self._tells_by_cells and name not in outside:
                self._refuse_another_utility(h, state, slot)
            found.append(slot)
        self._last_slots = np.array(found)
        return self._last_slots

    def slot(self, h: int, state: Any) -> int:
        """The slot of a state, −1 if it was never seen at this step."""
        return self._slot_of[h].get(self.task.key(state), -1)

    def names(self) -> list[list[Hashable]]:
        """The keys of the states of each step, in the order of their slots."""
        return [list(known) for known in self._slot_of]

    def rename(self, names: list[list[Hashable]]) -> None:
        """Look states up by these keys, as `names` gave them, from now on."""
        self._slot_of = [{name: slot for slot, name in enumerate(known)} for known in names]
        if self.shared:
            self._slot_of = len(names) * self._slot_of[:1]
        found = [[known.get(one, -1) for known in self._slot_of] for one in self.task.outside]
        self._outside_slots = np.array(found, dtype=np.int64).reshape(len(found), len(names))

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode; the dummy first step of a random start teaches as much about every action."""
        super().observe(states, actions)
        if self.task.random_start and self.task.one_hot:
            following = int(self._last_slots[1]) if self.task.horizon > 1 else -1
            for action in range(self.task.num_actions):
                if action != actions[0]:
                    self._count(0, action, 0, following, 1.0)
            if self.shared:
                self.model.log_det[:] = self.model.log_det[0]

    def observe_signals(self, actions: IntArray, seen: Array) -> None:
        """Add the rewards and utilities `seen` (H, 2) of the episode that was observed last."""
        if self.signals is not None:
            slots = self._last_slots[: self.task.horizon]
            if len(self._outside_slots):
                seen = seen * (slots != self._outside_slots).all(axis=0)[:, None]
            self.signals.observe(self.phi, slots, actions, seen)

    def prepare(self, scales: Scales) -> None:
        """Estimates of unknown reward and utility at all slots; what is told of the states outside stays."""
        super().prepare(scales)
        if self.signals is None:
            return
        decision.refresh(self.model, self.support.size, self.work, scales)
        missing = 0.0 if math.isinf(scales.most_lost) else self.ridge  # what is lost is in `backward_pass.average`
        self.signals.fill(self.model, self.support, self.work, missing)
        for slots, told in zip(self._outside_slots, self.task.outside.values(), strict=True):
            steps = np.flatnonzero(slots >= 0)
            for values, value in zip((self.support.reward, self.support.utility), told, strict=True):
                values[steps, :, slots[steps]] = value

    def enlarge(self) -> None:
        """Double the room for slots and for transitions."""
        super().enlarge()
        if self.signals is not None:
            self.signals.widen(self.phi.shape[3])

    def _describe(self, h: int, state: Any, name: Hashable) -> int:
        """A new slot with what the task tells of the state, at this step or, where they share their data, at all."""
        steps = range(self.task.horizon) if self.shared else (h,)
        described = [self.task.described(step, state) for step in steps]  # refuses what is out of range
        slot = self._slot_of[h][name] = int(self.support.size[h])
        if name in self.task.outside:
            self._outside_slots[[one == name for one in self.task.outside], steps] = slot
        for step, (features, reward, utility) in zip(steps, described, strict=True):
            self.phi[step, :, :, slot] = features
            self.support.reward[step, :, slot], self.support.utility[step, :, slot] = reward, utility
            self.support.size[step] += 1
        return slot

    def _refuse_another_utility(self, h: int, state: Any, slot: int) -> None:
        """A told utility must be that of all states of a cell: the model has one, of the state that was seen first."""
        for step in range(self.task.horizon) if self.shared else (h,):
            here, there = self.task.utility_at(step, state), self.support.utility[step, :, slot]
            if np.abs(here - there).max() > TOLERANCE:
                raise InvalidProblem(
                    f"utility= at step {step}, state {state!r} is {here}, and {there} at another state of its cell: "
                    "give finer cells, or leave out utility= and let it be learned"
                )

    def _know_to_stay(self, state: Any) -> None:
        """The state leads to itself from the second step on, whatever the action; or in the one model of all steps."""
        steps = [0] if self.shared else list(range(1, self.task.horizon))
        slots = [self._describe(h, state, self.task.key(state)) for h in steps]
        following = slots if self.shared else [*slots[1:], -1]
        for h, slot, then in zip(steps, slots, following, strict=False):  # one step has no second
            if self.model.is_dense:
                x = self.phi[h, 0, :, slot]
                self.model.gram[h] += CERTAIN * np.outer(x, x)
                if then >= 0:
                    self.model.moments[h, :, then] += CERTAIN * x
            else:
                for action in range(self.task.num_actions):
                    self._count(h, action, slot, then, CERTAIN)
        self.refactor()

    def _count(self, h: int, action: int, slot: int, following: int, times: float) -> None:
        """`model_update.count_transition`, with room for it."""
        if self.is_full():
            self.enlarge()
        model_update.count_transition(self.model, h, action, slot, following, times)


AnyRegression = FiniteRegression | SampledRegression


def regression_for(task: AnyTask, ridge: float, signal_scale: float, pessimistic: bool) -> AnyRegression:
    """The regression that fits the task's states; C_θ = `signal_scale` is read where reward or utility is unknown."""
    if task.is_listed:
        return FiniteRegression(task, ridge)
    return SampledRegression(task, ridge, Signals(task, signal_scale, pessimistic) if task.unknown else None)


def fitted(regression: AnyRegression, scales: Scales, lam: float, kept: Kept | None = None) -> Fitted:
    """The regression that the last decision left in `work`, frozen, or the one that keeps this, with slots of it."""
    kind = FittedSlots if regression.task.one_hot else FittedFeatures
    return kind(regression, scales, lam, kept_now(regression, scales) if kept is None else kept)


def episodes_to_refactoring(num_episodes: int) -> int:
    """How many more episodes until Λ⁻¹ is computed afresh."""
    if num_episodes < REFACTOR_EVERY:
        return min(1 << num_episodes.bit_length(), REFACTOR_EVERY) - num_episodes
    return REFACTOR_EVERY - num_episodes % REFACTOR_EVERY
