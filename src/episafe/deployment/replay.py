"""Recorded episodes, learned again by a new agent: its plans must come out as they were, to the last bit."""

import math
from collections.abc import Iterable

from episafe.agents.base import Agent, Plan
from episafe.deployment.batches import episodes_of
from episafe.errors import DamagedFile
from episafe.runs.run import SOURCES
from episafe.runs.tape import log_dets
from episafe.storage.frames import Frame, Kind


class Differs(DamagedFile):
    """A plan that does not come out of the recorded episodes as it was recorded."""


def replay(agent: Agent, frames: Iterable[Frame], num_envs: int = 1) -> int:
    """Let `agent` plan and learn the batches among `frames`; returns how many plans were compared.

    A vector environment with `num_envs` sub-environments played as many episodes of each plan before the next.
    """
    compared = 0
    for frame in frames:
        start = frame.notes.get("episode", 0)
        if frame.kind != Kind.BATCH:
            continue
        new = {start + begin: i for i, begin in enumerate(frame.arrays["begins"].tolist())}
        for k, episode in enumerate(episodes_of(frame, agent.task), start):
            plan = agent.plan_in_force if k % num_envs else agent.plan()
            if k in new:
                compare(agent, plan, frame, new[k], k)
                compared += 1
            agent.learn(episode, plan_id=plan.id)
    return compared


def compare(agent: Agent, plan: Plan, frame: Frame, i: int, k: int) -> None:
    """Plan i of a batch, of episode k, against the one that was made again."""
    arrays = frame.arrays
    lam, bound = arrays["bounds"][i].tolist()
    recorded = (int(arrays["plans"][i]), SOURCES[arrays["sources"][i]], lam, bound, *arrays["log_dets"][i].tolist())
    found = (plan.id, plan.source, plan.lam, plan.utility_bound, *log_dets(agent).tolist())
    names = ("plan", "source", "lam", "bound", *(f"log_dets[{h}]" for h in range(len(found) - 4)))
    differing(k, names, recorded, found)


def differing(k: int, names: tuple[str, ...], recorded: tuple[object, ...], found: tuple[object, ...]) -> None:
    """Refuse the first entry that differs; two NaN are alike."""
    if len(recorded) != len(found):
        raise Differs(
            f"the plan of episode {k} has {len(recorded)} figures in the journal, and {len(found)} made again"
        )
    for name, was, now in zip(names, recorded, found, strict=True):
        if was != now and not (_is_nan(was) and _is_nan(now)):
            raise Differs(
                f"{name} of the plan of episode {k} is {was!r} in the journal, and {now!r} when it is made again from "
                "the recorded episodes: the files were changed, or made by other versions of episafe, numpy or numba"
            )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
