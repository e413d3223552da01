"""`es.run`: plan, deploy, observe, learn, for any agent; and the record of it.

A compiled loop replaces the plain one where there is one, and gives the same record.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any, get_args

import numpy as np

from episafe.core.agent import Agent
from episafe.core.checks import as_count
from episafe.core.task import Problem
from episafe.problems.linear import LinearCMDP
from episafe.simulation.checks import Watch
from episafe.simulation.record import NUM_SAMPLES, Columns, Record
from episafe.simulation.worlds import World, make_streams, world_of

FIRST_BLOCK, LARGEST_BLOCK, LONG = 500, 4096, 1.0  # episodes per call of a compiled loop; seconds it should not exceed
TELL_EVERY = 0.5  # seconds between calls of on_progress

# (world, agent, columns, start, stop): plays episodes start..stop, fills their rows, and leaves the agent as
# the plain loop would; False if it does not know the agent's settings, in which case nothing was played
CompiledLoop = Callable[[Any, Any, Columns, int, int], bool | None]


@cache
def compiled_loops() -> dict[tuple[type, type], CompiledLoop]:
    """Return the compiled loops by exact types of problem and agent: a subclass runs in the plain loop."""
    from episafe.certify.safe_agent import SafeAgent
    from episafe.simulation import compiled_safe, compiled_softmax  # they import this module

    found: dict[tuple[type, type], CompiledLoop] = {(LinearCMDP, SafeAgent): compiled_safe.play_episodes}
    return found | {(LinearCMDP, agent): compiled_softmax.play_episodes for agent in get_args(compiled_softmax.Learner)}


def run(
    problem: Problem, agent: Agent, num_episodes: int = 10_000, seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Record:  # fmt: skip
    """Run `agent` on `problem`; the same seed and a new agent give the same record.

    Args:
        problem: the problem to play; the agent sees only its task.
        agent: plans before each episode and learns after it; it must be new.
        num_episodes: K; rounds of a bandit.
        seed: the seed of the run. If a candidate of the agent was learned in another run, use a different seed.
        on_progress: called with the number of episodes played, about twice per second.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    if isinstance(agent, type):
        raise TypeError(f"run needs an agent, got the class {agent.__name__}: build it, {agent.__name__}(problem.task)")
    K, streams, task = as_count("num_episodes", num_episodes), make_streams(as_count("seed", seed, 0)), problem.task
    world = world_of(problem, streams, agent.uses_traces)
    world.check(agent, K)
    agent.claim("a run")
    if agent.certifier is not None:
        agent.certifier.use_salt(f"run {seed}")
    totals = world.unknown or agent.certifier is not None
    columns, began = Columns(K, task.num_constraints, totals, world.changes), time.perf_counter()
    try:
        _play(world, agent, columns, on_progress or (lambda done: None))
    finally:
        world.end()
    seconds = time.perf_counter() - began
    settings = {**world.problem.origin, **agent.settings(), f"num_{world.unit}": K, "run_seed": int(seed)}
    settings |= {**world.settings(), **versions(), "seconds": seconds}
    settings |= {"limit": task.constraints[0].name, "units": {name: list(task.unit(name)) for name in task.units}}
    optimum = world.optimum() if columns.optima is None else float(columns.optima.mean())
    return columns.record(optimum, task.thresholds, settings, [one.name for one in task.constraints])


def _play(world: World, agent: Agent, columns: Columns, tell: Callable[[int], None]) -> None:
    """Play all episodes, in blocks of about a second where a compiled loop can."""
    compiled = compiled_loops().get((type(world.problem), type(agent)))
    watch = Watch(world)
    done, block, told, K = 0, FIRST_BLOCK, time.perf_counter(), columns.num_episodes
    marks = np.unique(np.linspace(1, K, NUM_SAMPLES).astype(int)) if agent.certifier is not None else np.array([K])
    while done < K:
        mark = int(marks[np.searchsorted(marks, done, side="right")])
        began, stop = time.perf_counter(), min(done + (block if compiled else 1), mark)
        if compiled is not None and compiled(world, agent, columns, done, stop) is False:
            compiled = None
            continue
        if compiled is None:
            play_episode(world, agent, columns, done, watch)
        took, done = time.perf_counter() - began, stop
        if done == mark and agent.certifier is not None and agent.deployed is not None:
            columns.sample(done, agent.bounds(), agent.deployed)
        block = min(2 * block, LARGEST_BLOCK) if took < LONG / 4 else max(block // 2, 1) if took > LONG else block
        if time.perf_counter() - told > TELL_EVERY or done == K:
            told = time.perf_counter()
            tell(done)


def play_episode(world: World, agent: Agent, columns: Columns, k: int, watch: Watch | None = None) -> None:
    """Play episode k: plan, draw the component, note the facts, act, learn; `watch` looks for common mistakes."""
    if columns.optima is not None:
        columns.optima[k] = world.optimum(k)
    plan = agent.plan()
    component, policy = world.draw(plan)
    own = None if component is None or world.unknown else world.values(replace(plan, policy=policy))[1]
    columns.note(k, plan, world.values(plan), component or 0, policy, own)
    episode = world.play(k, policy, component)
    if columns.totals is not None:
        columns.totals[k] = world.totals(episode)
        if watch is not None:
            watch.see(policy, columns.totals[k, 1:])
    agent.learn(episode, plan.id)


@cache
def versions() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    packages = {f"{name}_version": version(name) for name in ("episafe", "numpy", "numba")}
    return {**packages, "python_version": platform.python_version()}
