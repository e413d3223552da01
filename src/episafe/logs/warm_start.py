"""Warm start: what a learner takes from a log of episodes before its own first one."""

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from episafe.errors import DamagedFile, InvalidEpisode, InvalidProblem
from episafe.logs.minari import load, read_minari
from episafe.logs.tables import read_log
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Episode

MINARI_ID = re.compile(r"[-\w/]+-v\d+")
TRUTHS = {"true": 1, "false": 0}


def learn_log(agent: Any, source: Any) -> int:
    """Let `agent` learn every episode of a log, and return how many were new to it.

    The log is read and checked in full before anything is learned, so that one that is damaged, or has an episode that
    is refused, changes nothing. With a theorem's constants, K must count these episodes too. An agent refuses a log
    that it has learned, or a part of it before it was interrupted; a journal leaves out the episodes that it has, so
    that a program may be started again. Logs must not overlap: nobody sees that.

    Args:
        agent: who learns; or the journal of one, what `es.open` returns.
        source: a CSV or Parquet file, with the columns of `episafe.logs.tables`; a Minari dataset, or the id of a
            local one, with raw signals, as the environment gave them.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming")
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> es.learn_log(agent, "incumbent.csv")  # doctest: +SKIP
        500
    """
    if isinstance(source, str) and MINARI_ID.fullmatch(source) and not Path(source).is_file():
        source = load(source)
    whole = list((read_minari if hasattr(source, "iterate_episodes") else read_log)(source, agent.task))
    for number, episode in enumerate(whole):
        try:
            agent.check(episode)
        except (InvalidEpisode, InvalidProblem) as error:
            raise DamagedFile(f"episode number {number} of the log, counted from 0: {error}") from error
    name, name_before = _digest(whole, agent.task), _digest_before(whole)
    if hasattr(agent, "reported_ids"):
        known = agent.reported_ids
        new = [n for n in range(len(whole)) if known.isdisjoint({f"log {name} {n}", f"log {name_before} {n}"})]
        for number in new:
            agent.learn(whole[number], episode_id=f"log {name} {number}")
        return len(new)
    if name in agent.logs or name_before in agent.logs:
        raise ValueError(
            "the agent has learned this log before, or a part of it, if it was interrupted: twice it would count as "
            "twice the data; leave it out, or begin with a new agent"
        )
    agent.logs.append(name)  # first: whoever is interrupted has learned a part
    for episode in whole:
        agent.learn(episode)
    return len(whole)


def _digest(episodes: list[Episode], task: AnyTask) -> str:
    """What names a log, whatever file it is in: all that is learned of it, as the task reads it."""
    digest = hashlib.sha256()
    for episode in episodes:
        trace = None if episode.trace is None else task.read_trace(episode.trace)
        digest.update(repr(_canonical([task.read_report(episode), trace])).encode())
    return digest.hexdigest()


def _canonical(value: Any) -> Any:
    """The same for values that differ by their file alone: 3 and 3.0, true in words, fractions by float32's digits."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [_canonical(entry) for entry in value]
    if isinstance(value, Mapping):
        return [_canonical(entry) for entry in value.items()]
    if isinstance(value, str):
        return TRUTHS.get(value.lower(), value)
    if isinstance(value, float | Decimal):
        value = float(value)
        value = value if value.is_integer() else float(np.float32(value))
        return int(value) if value.is_integer() else value
    return value.value if isinstance(value, Enum) else int(value) if isinstance(value, bool) else value


def _digest_before(episodes: list[Episode]) -> str:
    """The name by which journals and agents of earlier versions know a log."""
    digest = hashlib.sha256()
    for episode in episodes:
        for values in (episode.states, episode.actions, episode.rewards, episode.utilities):
            digest.update(repr(None if values is None else [_listed(value) for value in values]).encode())
        if episode.trace is not None:
            digest.update(repr(episode.trace).encode())
    return digest.hexdigest()


def _listed(value: Any) -> Any:
    try:
        return np.asarray(value).tolist()
    except ValueError:  # a tuple of unlike parts, which no log of before had
        return value
