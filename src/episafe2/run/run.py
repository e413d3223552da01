"""`es.run`: plan, deploy, observe, learn, for any agent; and the record of it.

A compiled loop replaces the plain one where there is one, and gives the same record.
"""

import platform
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any
from weakref import WeakSet

import numpy as np

from episafe2.core.agent import Agent
from episafe2.core.checks import as_count
from episafe2.core.types import Array
from episafe2.run.checks import NUM_CHECKED, doubt
from episafe2.run.record import Columns, Record
from episafe2.run.worlds import Streams, World, make_streams, world_of

FIRST_BLOCK, LARGEST_BLOCK, LONG = 500, 4096, 1.0  # episodes per call of a compiled loop; seconds it should not exceed
TELL_EVERY = 0.5  # seconds between calls of on_progress

# (problem, agent, columns, streams, start, stop): plays episodes start..stop, fills their rows, and leaves the agent as
# the plain loop would; False if it does not know the agent's settings, in which case nothing was played
CompiledLoop = Callable[[Any, Any, Columns, Streams, int, int], bool | None]

_used: WeakSet[Any] = WeakSet()


@cache
def compiled_loops() -> dict[tuple[type, type], CompiledLoop]:
    """Return the compiled loops by exact types of problem and agent: a subclass runs in the plain loop."""
    from importlib import import_module

    found: dict[tuple[type, type], CompiledLoop] = {}
    for name in ("softmax", "mixture", "hindsight", "bandit"):
        try:
            found |= import_module(f"episafe2.run.compiled_{name}").LOOPS
        except ImportError:  # while they are being written
            continue
    return found


def run(
    problem: Any,
    agent: Agent,
    num_episodes: int = 10_000,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Run `agent` on `problem`; the same seed and a new agent give the same record.

    Args:
        problem: known to this loop and not to the agent, which sees the task only.
        agent: plans before each episode and learns after it; it must be new.
        num_episodes: K; rounds of a bandit.
        seed: of the run. Take another seed than that of a run in which a candidate of the agent was learned.
        on_progress: called with the number of episodes played, about twice per second.

    Example:
        >>> import episafe2 as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    if isinstance(agent, type):
        raise TypeError(f"run needs an agent, got the class {agent.__name__}: build it, {agent.__name__}(problem.task)")
    if agent in _used:
        raise ValueError("this agent has been run before: build a new one, since the same draws are no new evidence")
    K, streams, task = as_count("num_episodes", num_episodes), make_streams(as_count("seed", seed, 0)), problem.task
    world = world_of(problem, streams, agent.uses_traces)
    world.check(agent, K)
    _used.add(agent)
    columns, began = Columns(K, task.num_constraints, world.unknown, world.changes), time.perf_counter()
    try:
        _play(world, agent, columns, on_progress or (lambda done: None))
    finally:
        world.end()
    seconds = time.perf_counter() - began
    settings = {**problem.origin, **agent.settings(), f"num_{world.unit}": K, "run_seed": int(seed)}
    settings |= {**world.settings(), **versions(), "seconds": seconds}
    optimum = world.optimum() if columns.optima is None else float(columns.optima.mean())
    return columns.record(optimum, task.thresholds, settings, [one.name for one in task.constraints])


def _play(world: World, agent: Agent, columns: Columns, tell: Callable[[int], None]) -> None:
    """Play all episodes, in blocks of about a second where a compiled loop can."""
    compiled = compiled_loops().get((type(world.problem), type(agent)))
    seen: list[Array] = []
    done, block, told, K = 0, FIRST_BLOCK, time.perf_counter(), columns.num_episodes
    while done < K:
        began, stop = time.perf_counter(), min(done + (block if compiled else 1), K)
        if compiled is not None and compiled(world.problem, agent, columns, world.streams, done, stop) is False:
            compiled = None
            continue
        if compiled is None:
            play_episode(world, agent, columns, done, seen)
        took, done = time.perf_counter() - began, stop
        block = min(2 * block, LARGEST_BLOCK) if took < LONG / 4 else max(block // 2, 1) if took > LONG else block
        if time.perf_counter() - told > TELL_EVERY or done == K:
            told = time.perf_counter()
            tell(done)


def play_episode(world: World, agent: Agent, columns: Columns, k: int, seen: list[Array]) -> None:
    """Play episode k: plan, draw the component, note the facts, act, learn.

    `seen` collects total utilities of the incumbent, from which common mistakes are found.
    """
    if columns.optima is not None:
        columns.optima[k] = world.optimum(k)
    plan = agent.plan()
    component, policy = world.draw(plan)
    columns.note(k, plan, world.values(plan), component or 0, policy)
    episode = world.play(k, policy, component)
    if columns.totals is not None:
        read = world.problem.task.read(episode)
        columns.totals[k, 0], columns.totals[k, 1:] = read.total_reward, read.total_utility
        if policy is world.problem.task.incumbent and len(seen) < NUM_CHECKED:
            seen.append(np.array(read.total_utility))
            if len(seen) == NUM_CHECKED and (said := doubt(world.problem.task, np.array(seen))):
                warnings.warn(said, stacklevel=4)
    agent.learn(episode, plan.id)


@cache
def versions() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    packages = {f"{name}_version": version(name) for name in ("episafe", "numpy", "numba")}
    return {**packages, "python_version": platform.python_version()}
