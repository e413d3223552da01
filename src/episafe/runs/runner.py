"""Running an agent: plan, deploy, observe, learn; exact values whenever the policy changed."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from episafe.agents.base import Agent, Episode, Plan, Source
from episafe.agents.opse import OPSE
from episafe.agents.softmax_agent import SoftmaxAgent
from episafe.arrays import Array
from episafe.certify.observation import ObservationCertificate
from episafe.errors import Infeasible
from episafe.problems.checks import TOLERANCE
from episafe.problems.cmdp import LinearCMDP, refuse_steps_that_differ
from episafe.problems.gym import GymCMDP
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled import AnyTask, SampledCMDP, SampledTask
from episafe.runs.compiled import CompiledRun, can_compile
from episafe.runs.compiled_mixtures import CompiledMixtureRun
from episafe.runs.facts import Coins, Facts, blank, no_coins
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
    """Run `agent` on `cmdp`; the same seed gives the same record of a new agent, bit for bit.

    Args:
        cmdp: the world, known to this loop and not to the agent.
        agent: plans before each episode and learns after it.
        num_episodes: K.
        seed: of the run; actions, transitions and the coins of mixtures are drawn from separate streams.
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
    if isinstance(cmdp, LinearCMDP):
        _check_what_is_assumed(cmdp, agent)
    if isinstance(agent, SoftmaxAgent):
        agent.constants.refuse_outside_scope(agent.task, agent.num_learned + num_episodes)
    start = time.perf_counter()
    # a second run of one agent has streams of its own: the same draws again would be no new data
    num_runs = getattr(agent, "num_runs", 0)
    root = np.random.SeedSequence(seed, spawn_key=(num_runs,) if num_runs else ())
    agent.num_runs = num_runs + 1
    transitions, choices, coin = (np.random.default_rng(s) for s in root.spawn(3))
    facts, totals = blank(num_episodes), None
    coins = no_coins(num_episodes) if _mixes(agent) else None
    if isinstance(cmdp, GymCMDP):
        totals = np.empty((num_episodes, 2))
        cmdp.seed(int(transitions.integers(2**31)))
        loop = live_loop(cmdp, agent, choices, SOURCES, facts, totals, lambda plan, k: _toss(plan, k, coin, coins))
    elif isinstance(cmdp, SampledCMDP):
        totals = np.empty((num_episodes, 2))
        loop = sampled_loop(cmdp, agent, (choices, transitions), facts, totals, coin, coins)
    elif isinstance(agent, OPSE) and coins is not None and agent.task.time_homogeneous:
        loop = plain_loop(cmdp, agent, (choices, transitions), facts, coin, coins)
    elif isinstance(agent, OPSE) and coins is not None:
        loop = compiled_mixture_loop(cmdp, agent, (choices, transitions), facts, coin, coins)
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
        components=None if coins is None else coins.components,
        weights=None if coins is None else coins.weights,
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


def _mixes(agent: Agent) -> bool:
    return isinstance(agent, OPSE) and isinstance(agent.certificate, ObservationCertificate)


def _check_what_is_assumed(cmdp: LinearCMDP, agent: Agent) -> None:
    """What the agent is told, or a theorem assumes, and the kernel shows to be false is refused."""
    if agent.task.time_homogeneous:
        refuse_steps_that_differ(cmdp.P)
    if getattr(agent, "level", "") != "theorem":
        return
    told, true = agent.task.threshold + agent.task.slack, cmdp.evaluate(agent.task.safe_policy)[1]
    if not true >= told - TOLERANCE:
        raise Infeasible(
            f"the agent is told that its incumbent has utility {told}, and it has {true}: correct the slack"
        )
    certifier = getattr(agent, "certifier", None)
    if getattr(certifier, "name", "") == "fresh-data" and not cmdp.linearity_gap() <= TOLERANCE:
        raise Infeasible(f"P is not linear in the features, by {cmdp.linearity_gap():g}: use es.certify.Observation()")


def _loop(cmdp: LinearCMDP, agent: Agent, streams: Streams, facts: Facts) -> Iterator[int]:
    if isinstance(agent, SoftmaxAgent) and can_compile(agent):
        return compiled_loop(cmdp, agent, streams, facts)
    return plain_loop(cmdp, agent, streams, facts)


def plain_loop(
    cmdp: LinearCMDP,
    agent: Agent,
    streams: Streams,
    facts: Facts,
    coin: np.random.Generator | None = None,
    coins: Coins | None = None,
) -> Iterator[int]:
    """The loop for any agent; yields the number of episodes done, now and then. Mixtures need a coin."""
    kernel, H = running_sums(cmdp.P), cmdp.task.horizon
    states, actions = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64)
    states[0] = cmdp.task.initial_state
    current = None
    for k in range(len(facts.sources)):
        plan = agent.plan()
        component, acting = _toss(plan, k, coin, coins)
        if plan is not current:
            exact = cmdp.evaluate(plan.policy)
        if plan is not current or component is not None:
            current, policy = plan, running_sums(acting.table())
        facts.values[k], facts.bounds[k] = exact, (plan.lam, plan.utility_bound)
        facts.sources[k], facts.plan_ids[k] = SOURCES.index(plan.source), plan.id
        simulate(policy, kernel, *streams, states, actions)
        agent.learn(Episode(states, actions, component=component), plan_id=plan.id)
        if (k + 1) % REPORT_EVERY == 0:
            yield k + 1


def _toss(plan: Plan, k: int, coin: np.random.Generator | None, coins: Coins | None) -> tuple[int | None, Policy]:
    """Which policy acts in episode k, drawn and recorded before it; None if the plan is no mixture."""
    if not isinstance(plan.policy, MixturePolicy):
        return None, plan.policy
    assert coin is not None and coins is not None
    component, acting = plan.policy.draw(coin)
    coins.components[k], coins.weights[k] = component, plan.policy.weights
    return component, acting


def compiled_mixture_loop(
    cmdp: LinearCMDP, agent: OPSE, streams: Streams, facts: Facts, coin: np.random.Generator, coins: Coins
) -> Iterator[int]:
    """The same for OPSE under `Observation`, compiled."""
    return _compiled(CompiledMixtureRun(cmdp, agent, streams, coin, coins), facts)


def compiled_loop(cmdp: LinearCMDP, agent: SoftmaxAgent, streams: Streams, facts: Facts) -> Iterator[int]:
    """The same for softmax agents, compiled; it yields as often."""
    return _compiled(CompiledRun(cmdp, agent, streams), facts)


def _compiled(made: CompiledRun | CompiledMixtureRun, facts: Facts) -> Iterator[int]:
    try:
        for start in range(0, len(facts.sources), REPORT_EVERY):
            stop = min(start + REPORT_EVERY, len(facts.sources))
            made.advance(facts, start, stop)
            yield stop
    finally:
        made.finish()  # also when the run is interrupted: what was learned stays learned


def sampled_loop(
    cmdp: SampledCMDP,
    agent: Agent,
    streams: Streams,
    facts: Facts,
    totals: Array,
    coin: np.random.Generator | None = None,
    coins: Coins | None = None,
) -> Iterator[int]:
    """The loop for a problem given by functions: values are NaN, and what was collected goes into `totals` (K, 2)."""
    choices, transitions = streams
    task = cmdp.task
    for k in range(len(facts.sources)):
        plan = agent.plan()
        component, acting = _toss(plan, k, coin, coins)
        facts.values[k], facts.bounds[k] = (math.nan, math.nan), (plan.lam, plan.utility_bound)
        facts.sources[k], facts.plan_ids[k] = SOURCES.index(plan.source), plan.id
        states, actions, collected = [task.initial_state], [], np.zeros(2)
        for h in range(task.horizon):
            state = states[-1]
            action = int(draw(running_sums(acting.probabilities(h, state)), choices.random()))
            collected += task.reward_at(h, state)[action], task.utility_at(h, state)[action]
            actions.append(action)
            states.append(cmdp.sample(h, state, action, transitions))
        totals[k] = collected
        agent.learn(Episode(states, actions, component=component), plan_id=plan.id)
        if (k + 1) % REPORT_EVERY == 0:
            yield k + 1
