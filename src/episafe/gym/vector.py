"""A Gymnasium vector environment as a problem: N episodes of one policy side by side, each whole, each learned from."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from episafe.errors import InvalidProblem
from episafe.gym.adapter import LiveCMDP, PlayedSteps
from episafe.gym.autoreset import DISABLED, NEXT_STEP, SAME_STEP, SIGNALS, read_mode, split, unbatched
from episafe.gym.step_reader import read_reset
from episafe.problems.policy import Policy
from episafe.problems.states import key
from episafe.types import Array, amounts


class VectorGymCMDP(LiveCMDP):
    """What `from_gymnasium` makes of a vector environment.

    All episodes of a batch begin with one `reset` and go on to the horizon together. A sub-environment whose episode
    has ended early, or that plays none, is idle: it has to be stepped with the others, so the incumbent plays it from
    its own start, and what it returns belongs to no episode.

    Attributes:
        num_envs: N, episodes at a time.
    """

    is_vector = True

    def __init__(self, env: Any, *settings: Any, **more: Any) -> None:
        self.num_envs = int(env.num_envs)
        self._mode = read_mode(env)
        self._idle_rng = np.random.default_rng()
        super().__init__(env, *settings, **more)
        self.origin["num_envs"] = self.num_envs

    def seed(self, seed: int) -> None:
        """Begin the next batch with `env.reset(seed=seed)`, which gives sub-environment i the seed `seed` + i."""
        super().seed(seed)
        self._idle_rng = np.random.default_rng(seed)

    def reset(self, count: int | None = None) -> list[Any]:
        """Begin `count` episodes, N if not given: their first states, `START` if the start is random."""
        n = self.num_envs if count is None else count
        if not 1 <= n <= self.num_envs:
            raise InvalidProblem(f"{n} episodes at a time: give 1 to {self.num_envs}, the number of sub-environments")
        self._playing = [i < n for i in range(self.num_envs)]
        self._observations = self._begin()
        self._done = np.zeros(self.num_envs, dtype=bool)
        self._steps = np.zeros(self.num_envs, dtype=int)
        self._h, self._count = 0, n
        for i in range(n):
            where = f"episode {self._episode + i + 1}, in sub-environment {i},"
            self._refuse_another_start(self._observations[i], where)
        self._before, self._episode = self._episode, self._episode + n
        if self._random_start:
            self._h = -1
            return [self.task.initial_state] * n
        return self._observations[:n]

    def step(self, actions: Any) -> tuple[list[Any], Array, Array]:
        """The next state of each episode, and rewards and utilities of this step in [0, 1]; NaN for what is told.

        With several constraints utilities are (N, m), in their order.
        """
        self._refuse_after_the_end()
        if len(actions) != self._count:
            raise InvalidProblem(f"{len(actions)} actions for {self._count} episodes: give one for each")
        self._h += 1
        self._chances = [None] * self._count
        signals = np.tile(self.after_the_end, (self._count, 1))
        if self._h == 0:
            return self._observations[: self._count], *_columns(np.zeros_like(signals))
        if self._mode == DISABLED and self._done.any():
            self._restart(self._done)
        place = f"at step {self._h} of episodes {self._before + 1} to {self._episode}"
        returned = self.env.step(self._batch(actions))
        read = (*(SIGNALS if self._reading.signal else ()), *(("chance",) if self.task.is_exogenous else ()))
        wanted = dict.fromkeys(read, self._reading.names)
        tuples = split(returned, self.env, self._mode, wanted, place)
        following: list[Any] = [self.ended] * self._count
        self._chances = [tuples[i][-1].get("chance") if self._playing[i] else None for i in range(self._count)]
        for i in np.flatnonzero(self._playing):
            where = f"at step {self._h} of episode {self._before + i + 1}, sub-environment {i}"
            following[i], *signals[i] = self._followed(tuples[i], where)
            self._playing[i] = following[i] is not self.ended
        self._follow(returned, place)
        return following, *_columns(signals)

    def replay(self, actions: Sequence[Sequence[int]]) -> list[list[Any]]:
        """The states of episodes side by side in which these actions are taken, those of one episode each."""
        columns = [self.reset(len(actions)), *(self.step(list(taken))[0] for taken in zip(*actions, strict=True))]
        return [list(states) for states in zip(*columns, strict=True)]

    def play(self, policies: Sequence[Policy], rng: np.random.Generator) -> Iterator[PlayedSteps]:
        """One episode of each policy, N at a time side by side; sub-environments without one are idle."""
        for first in range(0, len(policies), self.num_envs):
            acting = policies[first : first + self.num_envs]
            batch: list[PlayedSteps] = [([state], [], [], []) for state in self.reset(len(acting))]
            for h in range(self.task.horizon):
                for policy, (states, actions, _, _) in zip(acting, batch, strict=True):
                    actions.append(self.draw(policy.probabilities(h, states[-1]), rng.random()))
                following, rewards, utilities = self.step([actions[-1] for _, actions, _, _ in batch])
                for i, (states, _, seen, chances) in enumerate(batch):
                    states.append(following[i])
                    seen.append((float(rewards[i]), *amounts(utilities[i]).tolist()))
                    chances.append(self._chances[i])
            for states, actions, seen, chances in batch:
                yield states, actions, list(zip(*seen, strict=True)), self._trace(states, chances)

    def _spaces(self) -> tuple[Any, Any]:
        return self.env.single_action_space, self.env.single_observation_space

    def _begin(self) -> list[Any]:
        return self._states(self._reset_env(), "at reset", range(self.num_envs))

    def _states(self, observations: Any, place: str, which: Any) -> list[Any]:
        """States of the sub-environments `which`, None for the others."""
        found = unbatched(observations, self.env, place)
        chosen = set(which)
        return [
            self._reading.state(one, f"{place}, sub-environment {i}") if i in chosen else None
            for i, one in enumerate(found)
        ]

    def _batch(self, actions: Any) -> Array:
        """The actions as the vector environment takes them; the incumbent's where a sub-environment is idle."""
        numbers = [actions[i] if playing else self._incumbent_action(i) for i, playing in enumerate(self._playing)]
        kind = self.env.single_action_space.dtype
        return np.stack([np.asarray(self._reading.actions[number], dtype=kind) for number in numbers])

    def _incumbent_action(self, i: int) -> int:
        if self._done[i] and self._mode == NEXT_STEP:
            return 0  # this step resets the sub-environment and ignores the action
        h = int(self._steps[i]) + int(self._random_start)
        return self.task.safe_policy.act(h, self._observations[i], self._idle_rng)

    def _follow(self, returned: Any, place: str) -> None:
        """Follow the sub-environments: their observations, and how many steps each is from its last reset."""
        was_reset = self._done & (self._mode == NEXT_STEP)
        self._done = np.asarray(returned[-3], dtype=bool) | np.asarray(returned[-2], dtype=bool)
        self._steps = np.where(was_reset | (self._done & (self._mode == SAME_STEP)), 0, self._steps + 1)
        over = self._done & (self._mode != SAME_STEP)  # a last observation, at which nothing is done
        self._observations = self._states(returned[0], place, np.flatnonzero(~over))

    def _restart(self, ended: Any) -> None:
        """Reset the sub-environments whose episodes have ended, in mode Disabled, and no other."""
        observations = read_reset(self.env.reset(options={"reset_mask": ended.copy()}))
        found = self._states(observations, "at reset", range(self.num_envs))
        for i in range(self.num_envs):
            if ended[i]:
                self._observations[i], self._steps[i] = found[i], 0
            elif key(found[i]) != key(self._observations[i]):
                raise InvalidProblem(
                    f"reset with a reset_mask after step {self._h - 1} changed sub-environment {i}, which the mask "
                    'leaves out: mode DISABLED must reset options["reset_mask"] only; mend reset, or use another mode'
                )


def _columns(signals: Array) -> tuple[Array, Array]:
    """Rewards (n,), and utilities (n,), or (n, m) of several constraints."""
    return signals[:, 0], signals[:, 1] if signals.shape[1] == 2 else signals[:, 1:]
