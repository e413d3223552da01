"""What a reader must know before the first number: what an agent is told besides, assumes, or is written from."""

from collections.abc import Sequence

from episafe.reports.labels import name
from episafe.reports.metrics import Summary

FROM_MEMORY = ("oplb", "safe-lucb", "roful")  # their papers' texts were not at hand


def beforehand(summaries: Sequence[Summary]) -> list[str]:
    """Sentences for the top of a summary; none where there is nothing to say."""
    found = [
        f"{name(agent)} is told {said}, which the others are not."
        for agent, said in _said(summaries, "told_besides").items()
    ]
    memory = [name(agent) for agent in dict.fromkeys(s.group.agent for s in summaries) if agent in FROM_MEMORY]
    if memory:
        found.append(f"From memory or summaries of a paper, not checked against its text: {', '.join(memory)}.")
    found += [
        f"The level of {name(agent)} also needs that {said}."
        for agent, said in _said(summaries, "level_assumes").items()
    ]
    return found


def _said(summaries: Sequence[Summary], key: str) -> dict[str, str]:
    """What the settings say under `key`, by agent, where they say anything."""
    return {s.group.agent: str(s.settings[key]) for s in summaries if s.settings.get(key)}
