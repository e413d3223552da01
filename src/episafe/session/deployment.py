"""One deployment: the policy acts, what happens is recorded, and leaving the block reports it."""

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from episafe.core.errors import InvalidEpisode
from episafe.core.policy import Mixture, Policy
from episafe.core.types import ENDED, INCUMBENT, START, Array, Episode, PerLimit, Plan, State
from episafe.session.events import Deploy

if TYPE_CHECKING:
    from episafe.session.session import Session


class Deployment:
    """The policy for one episode, drawn and logged before the first action.

    Attributes:
        id: the deployment; None if it could not be logged: then it cannot be reported.
        plan: the plan, with bounds and reason.
        component: the position of the acting policy in `plan.policy.components`; None if one policy acts.
        name: the name of the acting policy.
        weights: the probability of each policy by name.
        policy: the acting policy.
        overridden: how many actions a person took in place of the policy.
    """

    def __init__(self, session: "Session", plan: Plan, made: Deploy | None = None) -> None:
        self.plan, self.id = plan, None if made is None else made.id
        self.name, self.weights = (INCUMBENT, {INCUMBENT: 1.0}) if made is None else (made.component, made.weights)
        self.component = made.index if made is not None and isinstance(plan.policy, Mixture) else None
        found = plan.policy
        self.policy: Policy = found.components[self.component or 0] if isinstance(found, Mixture) else found
        self._session = session
        self._task = task = session.task
        self._rng: np.random.Generator | None = None
        self.overridden, self._closed = 0, False
        self._states: list[State] = []
        self._actions: list[int] = []
        self._signals_of: list[tuple[float | None, Array | None]] = []  # reward and utilities of each step
        self._chances: list[object] = []
        self._start: object = None  # the first observation
        self._last: State | None = None  # the state after the last step
        self._remaining: Array | None = None
        self._num_recorded = self._num_dummy = int(task.random_start)
        self._carried = 0.0
        if task.random_start:
            reward, utilities = task.outside[START]
            self._add(START, 0)
            self._signals_of[0] = reward, np.array(utilities)

    def _add(self, state: State, action: int) -> None:
        self._states.append(state)
        self._actions.append(action)
        self._signals_of.append((None, None))
        self._chances.append(None)

    def _state(self, observation: object) -> State:
        assert self._task.encode is not None
        return self._task.encode(observation if self._task.carry is None else (observation, self._carried))

    def act(self, observation: object) -> int:
        """Return the action of the policy at an observation, and record the state and the action."""
        state = self._next_state(observation)
        if self._rng is None:
            self._rng = np.random.default_rng() if self.id is None else self._session.generator(self.id)
            self._rng.random(len(self._actions))  # drawn for the steps before, in other processes
        action = self.policy.act(len(self._actions), state, self._rng)
        self._add(state, action)
        return action

    def probabilities(self, observation: object) -> Array:
        """Return the probabilities (A,) of the actions at an observation; nothing is recorded."""
        return self.policy.probabilities(len(self._actions), self._next_state(observation))

    def took(self, action: int, observation: object) -> None:
        """Record an action that the policy took in another process."""
        self._add(self._next_state(observation), int(action))

    def override(self, action: int, observation: object = None) -> int:
        """Record that a person acts; the episode then counts as the worst case for every component of the plan.

        Call it in place of `act` with the observation, or after `act` to replace its action.
        """
        if observation is not None:
            self._add(self._next_state(observation), action)
        elif len(self._actions) == self._num_dummy:
            raise InvalidEpisode("nothing was observed yet: call act(observation) first, or give observation=…")
        self._actions[-1] = int(action)
        self.overridden += 1
        return action

    def _next_state(self, observation: object) -> State:
        horizon = self._task.horizon
        if horizon is None:
            raise InvalidEpisode("policies of this task are opaque: run d.policy yourself and record the totals")
        if self._closed or len(self._actions) >= horizon:
            raise InvalidEpisode(f"the episode is over after {horizon} steps: deploy again for the next one")
        if self._task.carry is not None and self._num_recorded < len(self._actions):
            raise InvalidEpisode("policies see a running total: call record(…) before the next act")
        if len(self._actions) == self._num_dummy:
            self._start = observation if self._task.carry is None else (observation, self._carried)
        return self._state(observation)

    def record(self, reward: float | None = None, utility: PerLimit = None, chance: object = None) -> None:
        """Record the outcome of the last action, once per step and before the next `act`.

        Args:
            reward: its reward in [0, 1], as `move` returns it; None if the task knows it.
            utility: its utility in [0, 1], or one per limit; None if the task knows it.
            chance: the random input of the step, if chance is exogenous.
        """
        if self._task.horizon is None:  # totals only: each call adds to them
            self._add(ENDED, 0)
        if self._num_recorded == len(self._actions):
            raise InvalidEpisode("record each step once: call act(observation) before record(…)")
        self._num_recorded = len(self._actions)
        given = None if utility is None else np.atleast_1d(np.asarray(utility, dtype=np.float64))
        carry, m = self._task.carry, self._task.num_constraints
        m = m if carry is None else carry.inner.num_constraints
        if given is not None and given.shape != (m,):
            raise InvalidEpisode(f"utility must have {m} entries, got {utility!r}")
        self._chances[-1] = chance
        if carry is not None:
            step = len(self._actions) - 1, self._states[-1], self._actions[-1], chance, given
            self._carried, given = carry.step(*step)
        self._signals_of[-1] = None if reward is None else float(reward), given

    def _signals(self, h: int, is_traced: bool) -> tuple[float, Array]:
        """Return reward and utilities of a step: as recorded, or as the task knows their means given no chance."""
        task, state, action, reward, utility = self._task, self._states[h], self._actions[h], *self._signals_of[h]
        for name, value, known in (("reward", reward, task.knows_reward), ("utility", utility, task.knows_utility)):
            if value is None and (is_traced or not known):
                raise InvalidEpisode(f"step {h} has no {name}: call d.record({name}=…) after every act")
        reward = float(task.reward_at(h, state)[action]) if reward is None else reward
        return reward, task.utility_at(h, state)[:, action] if utility is None else utility

    def end(self, observation: object = None, remaining_utility: PerLimit = None) -> None:
        """End the episode.

        Args:
            observation: what was observed after the last step.
            remaining_utility: the total utility of the remaining steps, if it is known; 0 if not.
        """
        if observation is not None:
            self._last = self._state(observation)
        if remaining_utility is not None:
            self._remaining = np.atleast_1d(np.asarray(remaining_utility, dtype=np.float64))

    def episode(self) -> Episode:
        """Return what was recorded, with encoded states."""
        task, steps = self._task, len(self._actions)
        if task.horizon is None:
            utility = np.sum([one for _, one in self._signals_of if one is not None], axis=0)
            reward = float(sum(one for one, _ in self._signals_of if one is not None))
            return Episode.of_totals(np.atleast_1d(utility), reward, self.component)
        left = task.horizon - steps
        if left and task.is_listed:
            raise InvalidEpisode(
                f"{steps} of {task.horizon} steps were played, but no listed state stands for an ended episode: "
                "play all steps, or abandon the deployment"
            )
        trace = None
        if any(chance is not None for chance in self._chances):
            trace = self._start, (*self._chances[self._num_dummy :], *[None] * left)
        signals = [self._signals(h, trace is not None) for h in range(steps)]
        if left:
            reward, rest = task.outside.get(ENDED, (0.0, (0.0,) * task.num_constraints))
            signals += [(reward, np.array(rest) if self._remaining is None else self._remaining / left)] * left
        rewards, utilities = zip(*signals, strict=True)
        states = [*self._states, *([ENDED] * (left + 1) if left else [self._after_last_step()])]
        actions = np.array([*self._actions, *[0] * left], dtype=np.int64)
        all_states = np.array(states) if task.is_listed else tuple(states)
        return Episode(all_states, actions, rewards, utilities, self.component, trace)

    def _after_last_step(self) -> State:
        task, h = self._task, len(self._actions) - 1
        if self._last is not None:
            return self._last
        if task.move is not None and self._chances[-1] is not None:
            return task.move(h, self._states[-1], self._actions[-1], self._chances[-1])[0]
        if task.is_listed and task.time_homogeneous:
            raise InvalidEpisode("the last state is unknown, but the task learns from it: call d.end(observation)")
        return self._states[-1] if task.is_listed else ENDED

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Report the episode; abandon it after an exception. A deployment that was not logged is passed over."""
        if self._closed or self.id is None:
            return
        self._closed = True
        if error is None and len(self._actions) > self._num_dummy:
            self._session.report(self.id, self.episode(), overridden=self.overridden, encoded=True)
            return
        seen = [one for _, one in self._signals_of if one is not None]
        so_far = np.sum(seen, axis=0) if seen and all(((one >= 0) & (one < np.inf)).all() for one in seen) else None
        reason = "nothing was recorded" if error is None else f"{type(error).__name__}: {error}"
        with suppress(OSError):  # it stays pending, and the caller's exception is not hidden
            self._session.abandon(self.id, reason, so_far)
