"""How groups are named and drawn: one name, colour and line style an agent, on paper and on screen."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from episafe.registry import BANDIT_AGENTS, BUILDS, REGISTRY
from episafe.reports.metrics import HAS_INCUMBENT, Summary
from episafe.reports.record_groups import is_bandit


@dataclass(frozen=True)
class Style:
    """How a line looks.

    Attributes:
        colour: of Okabe and Ito's colour-blind-safe set.
        dash: the pattern, by its name in `pictures.DASHES`.
        marker: its shape; only where two rows of a chart share an agent.
        width: in points; falls along the rows of a chart, so that lines on top of each other are all seen.
    """

    colour: str
    dash: str
    marker: str = ""
    width: float = 3.4


_STYLES = {name: Style(entry.colour, entry.dash) for name, entry in REGISTRY.items() if entry.colour}
_OTHERS = (Style("#E69F00", "longdashdot"), Style("#8B4513", "dash"), Style("#F0E442", "dashdot"))
_WIDTHS = (3.4, 2.6, 2.0, 1.6, 1.3)
_MARKERS = ("", "circle", "square", "triangle-up", "diamond")
_CAP = re.compile(r"\bcap=([\d.e+-]+)")  # of a `Radius`, as records write it


def are_rounds(summaries: Sequence[Summary]) -> bool:
    """Whether all that is spoken of are bandits."""
    return all(is_bandit(summary.settings) for summary in summaries)


def in_rounds(sentence: str, summaries: Sequence[Summary]) -> str:
    """The sentence about episodes, of rounds where all that is spoken of are bandits."""
    if not are_rounds(summaries):
        return sentence
    without_an = re.sub(r"\b([Aa])n episode", r"\1 episode", sentence)
    return without_an.replace("episode", "round").replace("Episode", "Round")


def name(agent: str) -> str:
    """The agent as the paper calls it."""
    return REGISTRY[agent].label if agent in REGISTRY else agent


def multiplied(summary: Summary) -> str:
    """The agent and, where it is not 1, the multiplier of its bonuses: nothing is proved of it then."""
    agent, said = summary.group.agent, summary.settings
    if agent not in BUILDS or "bonus" not in BUILDS[agent].options:
        return name(agent)
    cap = _CAP.search(str(said.get("radius", "")))  # DOPE's authors cap their radius at 1, times the multiplier
    bonus = float(cap[1] if cap else said.get("bonus", 1.0))
    return name(agent) + (f" (bonus × {bonus:g})" if bonus != 1 else "")


def title(summary: Summary) -> str:
    """The agent with its multiplier, and what was changed of it."""
    changes = summary.group.changes
    agent = name(summary.group.agent) if "bonus=" in changes else multiplied(summary)
    return agent + (f" [{changes}]" if changes else "")


def label(summary: Summary) -> str:
    """The legend's name of a row: agent, level of its check where it has one, replanning where not every episode."""
    remarks = [summary.group.level] if summary.has_incumbent and summary.group.level else []
    if not summary.group.replans_every_episode and summary.group.agent not in BANDIT_AGENTS:  # the table has theirs
        remarks.append(f"replans by {replanning(summary)}")
    return title(summary) + (f" ({', '.join(remarks)})" if remarks else "")


def check(summary: Summary) -> str:
    """The level of the check that a plan must pass, "none" where the agent is known to have no check."""
    if summary.group.agent in REGISTRY and summary.group.agent not in HAS_INCUMBENT:
        return "none"
    return summary.group.level or "–"


def replanning(summary: Summary) -> str:
    """When the agent plans again, in few words."""
    if "certifier" in summary.settings:
        return "as its certifier says"
    if not summary.group.replan:
        entry = REGISTRY.get(summary.group.agent)
        return "–" if entry is None or entry.plans else "never"
    if summary.group.replans_every_episode:
        return in_rounds("every episode", [summary])
    return summary.group.replan.replace("growth=", "")


def place_title(place: tuple[str, str]) -> str:
    """Environment and variant as a heading."""
    env, variant = place
    title = env[:1].upper() + env[1:]
    return f"{title}, {variant} variant" if variant else title


def styles(summaries: Sequence[Summary]) -> list[Style]:
    """A style for each summary: colour and dash by agent, the same in every chart."""
    unknown = list(dict.fromkeys(s.group.agent for s in summaries if s.group.agent not in _STYLES))
    looks = _STYLES | {agent: _OTHERS[rank % len(_OTHERS)] for rank, agent in enumerate(unknown)}
    before: dict[tuple[str, str], list[str]] = {}
    found = []
    for summary in summaries:
        agent, agents = summary.group.agent, before.setdefault(summary.group.place, [])
        marker = _MARKERS[agents.count(agent) % len(_MARKERS)]
        found.append(replace(looks[agent], marker=marker, width=_WIDTHS[min(len(agents), len(_WIDTHS) - 1)]))
        agents.append(agent)
    return found
