"""Minari datasets as logs: raw observations, actions and signals of an environment, read as the live task reads them.

An episode has T actions, rewards, terminations and truncations, T + 1 observations, and infos with T + 1 entries, the
first of `reset`, or T. The constraint signal is infos["utility"] or infos["cost"], whichever the limit is on.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from episafe.errors import DamagedFile, InvalidProblem
from episafe.gym.observations import state_of
from episafe.gym.step_reader import Reading, read_step
from episafe.logs.logged_episode import whole_episode
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Episode


def load(name: str) -> Any:
    """The local dataset of this id; nothing is downloaded."""
    try:
        import minari
    except ModuleNotFoundError as error:
        raise ValueError(f"the Minari dataset {name} needs minari: pip install episafe[minari]") from error
    try:
        return minari.load_dataset(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no local Minari dataset {name}: run `minari download {name}` first"
        ) from error


def read_minari(dataset: Any, task: AnyTask) -> Iterator[Episode]:
    """The episodes of a dataset, each whole, or it is refused with the place."""
    reading = task.reading
    for episode in dataset.iterate_episodes():
        place = f"Minari episode {episode.id}"
        T = len(episode.rewards)
        for name in ("terminations", "truncations"):
            flags = np.asarray(getattr(episode, name))
            if len(flags) != T or flags[:-1].any():
                raise DamagedFile(f"{place}: {name} must be {T}, and True at the last step only: record it anew")
        try:
            states = [_state(one, reading, f"at step {t}") for t, one in enumerate(_rows(episode.observations, T + 1))]
            actions = [_action(one, reading, f"at step {t}") for t, one in enumerate(_rows(episode.actions, T))]
            values = [None, None] if reading is None else _signals(episode, reading)
            yield whole_episode(task, states, actions, values, bool(episode.terminations[-1]), place)
        except InvalidProblem as error:
            raise DamagedFile(f"{place}: {error}") from error


def _rows(data: Any, count: int) -> list[Any]:
    """The entries of an array of `count`, or of a tuple of such arrays."""
    if isinstance(data, tuple):
        return list(zip(*(_rows(part, count) for part in data), strict=True))
    if len(data) != count:
        raise InvalidProblem(f"there are {len(data)} entries where {count} belong: record one for each step")
    return list(data)


def _state(observation: Any, reading: Reading | None, place: str) -> Any:
    if reading is not None:
        return reading.state(observation, place)
    state = state_of(np.asarray(observation)[()])
    return int(state) if isinstance(state, float) and state.is_integer() else state


def _action(action: Any, reading: Reading | None, place: str) -> int:
    if reading is None:
        return int(action)
    if not reading.actions.space.contains(action):
        raise InvalidProblem(f"action {action!r} {place} is not in {reading.actions.space}: use logs of this system")
    return reading.actions.number(action)


def _at(values: Any, t: int) -> Any:
    """A signal at a step, or a mapping of several."""
    return {name: column[t] for name, column in values.items()} if isinstance(values, dict) else values[t]


def _signals(episode: Any, reading: Reading) -> list[list[Any] | None]:
    """Rewards and utilities in [0, 1]; None for what the task tells."""
    T, infos = len(episode.rewards), episode.infos or {}
    named = {name: infos[name] for name in ("utility", "cost") if name in infos}
    for name, values in named.items():
        for column in values.values() if isinstance(values, dict) else (values,):
            if len(column) not in (T, T + 1):
                raise InvalidProblem(
                    f'infos["{name}"] has {len(column)} entries for {T} steps: record one for each step'
                )
    seen = []
    for t in range(T):
        info = {name: _at(values, t - T) for name, values in named.items()}  # from the end: reset may have one too
        step, place = (None, episode.rewards[t], False, False, info), f"at step {t}"
        _, reward, signal, *_ = read_step(step, reading.signal, place)
        seen.append(reading.values(reward, signal, place))
    rewards: list[Any] = [one[0] for one in seen]
    utilities: list[Any] = [one[1] if len(one) == 2 else list(one[1:]) for one in seen]
    return [None if reading.told[0] else rewards, None if reading.told[1] else utilities]
