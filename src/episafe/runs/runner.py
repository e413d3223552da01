"""Running an agent: plan, deploy, observe, learn; exact values whenever the policy changed."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from episafe.agents.base import Agent, Episode, Source
from episafe.agents.softmax_agent import SoftmaxAgent
from episafe.arrays import Array
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.gym import GymCMDP
from episafe.problems.sampled import AnyTask, SampledCMDP, SampledTask
from episafe.runs.compiled import CompiledRun, can_compile
from episafe.runs.facts import Facts, blank
from episafe.runs.live import live_loop
from episafe.runs.record import Record
from episafe.runs.settings import versions
from episafe.runs.simulate import Streams, draw, running_sums, simulate

SOURCES: list[Source] = ["safe", "zero", "search", "fixed"]  # as numbered in Facts.sources
REPORT_EVERY = 2_000  # episodes between calls of `on_progress`


def run(
    cmdp: LinearCMDP | SampledCMDP | GymCMDP,
    agent: Agent,
    num_episodes: int = 10_000,
    seed: int = 0,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Run `agent` on `cmdp`; the same seed gives the same record, bit for bit.

    Args:
        cmdp: the world, known to this loop and not to the agent.
        agent: plans before each episode and learns after it.
        num_episodes: K.
        seed: of the run; actions and transitions are drawn from two separate streams.
        on_progress: called now and then with the number of episodes done.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    num_episodes, seed = _whole("num_episodes", num_episodes, 1), _whole("seed", seed, 0)
    _check_same_problem(cmdp.task, agent.task)
    start = time.perf_counter()
    transitions, choices = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    facts, totals = blank(num_episodes), None
    if isinstance(cmdp, GymCMDP):
        totals = np.empty((num_episodes, 2))
        cmdp.seed(int(transitions.integers(2**31)))
        loop = live_loop(cmdp, agent, choices, SOURCES, facts, totals)
    elif isinstance(cmdp, SampledCMDP):
        totals = np.empty((num_episodes, 2))
        loop = sampled_loop(cmdp, agent, (choices, transitions), facts, totals)
    else:
        loop = _loop(cmdp, agent, (choices, transitions), facts)
    for done in loop:
        if on_progress is not None:
            on_progress(done)
    seconds = time.perf_counter() - start
    settings = {**cmdp.origin, **agent.settings(), "num_episodes": num_episodes, "run_seed": seed}
    return Record(
        reward_values=facts.values[:, 0].copy(),
        utility_values=facts.values[:, 1].copy(),
        sources=np.array(SOURCES)[facts.sources],
        lams=facts.bounds[:, 0].copy(),
        utility_bounds=facts.bounds[:, 1].copy(),
        plan_ids=facts.plan_ids,
        optimum=cmdp.optimal_value() if isinstance(cmdp, LinearCMDP) else math.nan,
        threshold=cmdp.task.threshold,
        settings={**settings, **versions(), "seconds": seconds},
        reward_totals=None if totals is None else totals[:, 0].copy(),
        utility_totals=None if totals is None else totals[:, 1].copy(),
    )


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def _check_same_problem(ours: AnyTask, agents: AnyTask) -> None:
    """The agent may be told another incumbent or slack, but its certificate must be about this problem."""
    arrays = ("reward", "utility", "threshold", "initial_state")
    comparable = not isinstance(ours, SampledTask) and not isinstance(agents, SampledTask)
    same = comparable and all(np.array_equal(getattr(ours, name), getattr(agents, name)) for name in arrays)
    if ours is not agents and not same:
        raise ValueError("the agent was built for another problem: build it from cmdp.task")


def _loop(cmdp: LinearCMDP, agent: Agent, streams: Streams, facts: Facts) -> Iterator[int]:
    if isinstance(agent, SoftmaxAgent) and can_compile(agent):
        return compiled_loop(cmdp, agent, streams, facts)
    return plain_loop(cmdp, agent, streams, facts)


def plain_loop(cmdp: LinearCMDP, agent: Agent, streams: Streams, facts: Facts) -> Iterator[int]:
    """The loop for any agent; yields the number of episodes done, now and then."""
    kernel, H = running_sums(cmdp.P), cmdp.task.horizon
    states, actions = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64)
    states[0] = cmdp.task.initial_state
    current = None
    for k in range(len(facts.sources)):
        plan = agent.plan()
        if plan is not current:
            current, policy, exact = plan, running_sums(plan.policy.table()), cmdp.evaluate(plan.policy)
        facts.values[k], facts.bounds[k] = exact, (plan.lam, plan.utility_bound)
        facts.sources[k], facts.plan_ids[k] = SOURCES.index(plan.source), plan.id
        simulate(policy, kernel, *streams, states, actions)
        agent.learn(Episode(states, actions), plan_id=plan.id)
        if (k + 1) % REPORT_EVERY == 0:
            yield k + 1


def compiled_loop(cmdp: LinearCMDP, agent: SoftmaxAgent, streams: Streams, facts: Facts) -> Iterator[int]:
    """The same for softmax agents, compiled; it yields as often."""
    made = CompiledRun(cmdp, agent, streams)
    try:
        for start in range(0, len(facts.sources), REPORT_EVERY):
            stop = min(start + REPORT_EVERY, len(facts.sources))
            made.advance(facts, start, stop)
            yield stop
    finally:
        made.finish()  # also when the run is interrupted: what was learned stays learned


def sampled_loop(cmdp: SampledCMDP, agent: Agent, streams: Streams, facts: Facts, totals: Array) -> Iterator[int]:
    """The loop for a problem given by functions: values are NaN, and what was collected goes into `totals` (K, 2)."""
    choices, transitions = streams
    task = cmdp.task
    for k in range(len(facts.sources)):
        plan = agent.plan()
        facts.values[k], facts.bounds[k] = (math.nan, math.nan), (plan.lam, plan.utility_bound)
        facts.sources[k], facts.plan_ids[k] = SOURCES.index(plan.source), plan.id
        states, actions, collected = [task.initial_state], [], np.zeros(2)
        for h in range(task.horizon):
            state = states[-1]
            action = int(draw(running_sums(plan.policy.probabilities(h, state)), choices.random()))
            collected += task.reward_at(h, state)[action], task.utility_at(h, state)[action]
            actions.append(action)
            states.append(cmdp.sample(h, state, action, transitions))
        totals[k] = collected
        agent.learn(Episode(states, actions), plan_id=plan.id)
        if (k + 1) % REPORT_EVERY == 0:
            yield k + 1
