"""Warm start: what a learner takes from a log of episodes before its own first one."""

from pathlib import Path

from episafe.agents.base import Agent, Episode
from episafe.problems.logs import read_log


def learn_log(agent: Agent, path: str | Path) -> int:
    """Let `agent` learn every episode of a CSV or Parquet log, and return how many there were.

    The columns are described in `episafe.problems.logs`. The file is read in full before anything is learned, so that a
    damaged one changes nothing. With a theorem's constants, K must count these episodes too.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming")
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> es.learn_log(agent, "incumbent.csv")  # doctest: +SKIP
        500
    """
    episodes = list(read_log(path, agent.task))
    for found in episodes:
        agent.learn(Episode(found.states, found.actions, found.rewards, found.utilities))
    return len(episodes)
