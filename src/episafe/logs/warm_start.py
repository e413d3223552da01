"""Warm start: what a learner takes from a log of episodes before its own first one."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from episafe.errors import DamagedFile, InvalidEpisode, InvalidProblem
from episafe.logs.minari import load, read_minari
from episafe.logs.tables import read_log
from episafe.types import Episode

MINARI_ID = re.compile(r"[-\w/]+-v\d+")


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
    name = _digest(whole)
    if hasattr(agent, "reported_ids"):
        new = [number for number in range(len(whole)) if f"log {name} {number}" not in agent.reported_ids]
        for number in new:
            agent.learn(whole[number], episode_id=f"log {name} {number}")
        return len(new)
    if name in agent.logs:
        raise ValueError(
            "the agent has learned this log before, or a part of it, if it was interrupted: twice it would count as "
            "twice the data; leave it out, or begin with a new agent"
        )
    agent.logs.append(name)  # first: whoever is interrupted has learned a part
    for episode in whole:
        agent.learn(episode)
    return len(whole)


def _digest(episodes: list[Episode]) -> str:
    """What names a log, whatever file it is in."""
    digest = hashlib.sha256()
    for episode in episodes:
        for values in (episode.states, episode.actions, episode.rewards, episode.utilities):
            digest.update(repr(None if values is None else [np.asarray(value).tolist() for value in values]).encode())
        if episode.trace is not None:
            digest.update(repr(episode.trace).encode())
    return digest.hexdigest()
