"""Running an agent: plan, deploy, observe, learn; exact values whenever the policy changed."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from episafe.agents.base import Agent, Episode, Plan, Source
from episafe.agents.opse import OPSE
from episafe.agents.softmax_agent import SoftmaxAgent
from episafe.certify.observation import ObservationCertificate
from episafe.checks import TOLERANCE
from episafe.errors import Infeasible
from episafe.gym.adapter import GymCMDP
from episafe.gym.vector import VectorGymCMDP
from episafe.kernels.simulation import Streams, draw, running_sums, simulate
from episafe.monitors import Monitors
from episafe.problems.cmdp import LinearCMDP, refuse_steps_that_differ
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled import AnyTask, SampledCMDP, SampledTask
from episafe.runs.columns import Coins, Facts, blank, no_coins
from episafe.runs.compiled import CompiledRun, can_compile
from episafe.runs.compiled_mixtures import CompiledMixtureRun
from episafe.runs.live import live_loop
from episafe.runs.record import Record
from episafe.runs.tape import BATCH, SampledTape, Tape, Trace
from episafe.storage.toml_settings import versions
from episafe.types import Array

SOURCES: list[Source] = ["safe", "zero", "search", "fixed"]  # as numbered in Facts.sources
FIRST_AHEAD, LONG = 500, 1.0  # episodes that a compiled loop begins with, and seconds that it shall not be away
Note = Callable[[int, Episode, Agent], None]


def run(
    cmdp: LinearCMDP | SampledCMDP | GymCMDP | VectorGymCMDP,
    agent: Agent,
    num_episodes: int = 10_000,
    seed: int = 0,
    *,
    monitors: Monitors | None = None,
    folder: str | Path | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Run `agent` on `cmdp`; the same seed gives the same record of a new agent, bit for bit.

    Args:
        cmdp: the world, known to this loop and not to the agent.
        agent: plans before each episode and learns after it.
        num_episodes: K. A vector environment plays N at a time; the last batch is smaller where N does not divide K.
        seed: of the run; actions, transitions and the coins of mixtures are drawn from separate streams.
        monitors: `es.Monitors(agent.task)` to watch the run, and to halt the agent where an alarm asks for it. The
            record is the same, bit for bit, up to an alarm; the loop is not compiled then.
        folder: where to keep a journal, an audit trail and, at the end, the record: a run that is killed is taken up
            by `es.resume(folder)`, and ends with the same record.
        on_progress: called now and then with the number of episodes done.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    if monitors is not None and folder is not None:
        raise ValueError("a run that is taken up could not go on with its monitors: give monitors= or folder=")
    under_way = Run(cmdp, agent, num_episodes, seed, monitors)
    if folder is None:
        return under_way.play(under_way.loop(), on_progress)
    from episafe.deployment.journalled import begin  # it runs by what is in this file

    return begin(under_way, folder, on_progress)


class Run:
    """A run under way: the world, the agent, the streams of luck, and the columns that its loop fills."""

    def __init__(
        self,
        cmdp: LinearCMDP | SampledCMDP | GymCMDP | VectorGymCMDP,
        agent: Agent,
        num_episodes: int = 10_000,
        seed: int = 0,
        monitors: Monitors | None = None,
    ) -> None:
        K, self.seed = _whole("num_episodes", num_episodes, 1), _whole("seed", seed, 0)
        _check_same_problem(cmdp.task, agent.task)
        if isinstance(cmdp, LinearCMDP):
            _check_what_is_assumed(cmdp, agent)
        if isinstance(agent, SoftmaxAgent):
            agent.constants.refuse_outside_scope(agent.task, agent.num_learned + K)
        self.cmdp, self.agent, self.num_episodes, self.seconds = cmdp, agent, K, 0.0
        self.monitors = monitors
        if monitors is not None and monitors.task is not agent.task:
            raise ValueError("the monitors were built for another task: build them from agent.task")
        # a second run of one agent has streams of its own: the same draws again would be no new data
        num_runs = getattr(agent, "num_runs", 0)
        root = np.random.SeedSequence(self.seed, spawn_key=(num_runs,) if num_runs else ())
        agent.num_runs = num_runs + 1
        self.transitions, self.choices, self.coin = (np.random.default_rng(s) for s in root.spawn(3))
        self.facts = blank(K)
        self.totals = None if isinstance(cmdp, LinearCMDP) else np.empty((K, 2))
        self.coins = no_coins(K) if _mixes(agent) else None
        if isinstance(cmdp, GymCMDP | VectorGymCMDP):
            cmdp.seed(int(self.transitions.integers(2**31)))

    def loop(self, first: int = 0, tape: Tape | SampledTape | None = None) -> Iterator[int]:
        """Play episodes `first` and on; yields the number done, now and then."""
        cmdp, agent, facts, coin, coins = self.cmdp, self.agent, self.facts, self.coin, self.coins
        streams, note = (self.choices, self.transitions), self._noting(tape)
        if isinstance(cmdp, GymCMDP | VectorGymCMDP):
            assert self.totals is not None
            toss = partial(_toss, coin=coin, coins=coins)
            return live_loop(cmdp, agent, self.choices, SOURCES, facts, self.totals, toss, first, note)
        if isinstance(cmdp, SampledCMDP):
            assert self.totals is not None
            return sampled_loop(cmdp, agent, streams, facts, self.totals, coin, coins, first, note)
        if (
            self.monitors is not None
            or getattr(agent, "halted", False)
            or (coins is not None and agent.task.time_homogeneous)
        ):
            return plain_loop(cmdp, agent, streams, facts, coin, coins, first, note)
        if isinstance(agent, OPSE) and coins is not None:
            return compiled_mixture_loop(
                cmdp, agent, streams, facts, coin, coins, first, None if tape is None else tape.trace
            )
        return _loop(cmdp, agent, streams, facts, first, tape)

    def _noting(self, tape: Tape | SampledTape | None) -> Note:
        """What is done with each episode once it is learned: monitors see it, and it goes on tape."""
        note, monitors = forget if tape is None else tape.note, self.monitors
        if monitors is None:
            return note

        def watched(k: int, episode: Episode, agent: Agent) -> None:
            for alarm in monitors.watch(agent.plan_in_force, episode):
                if alarm.halts:
                    agent.halt(alarm.says)
            note(k, episode, agent)

        return watched

    def play(self, loop: Iterable[int], on_progress: Callable[[int], None] | None) -> Record:
        """Exhaust a loop."""
        start, shown = time.perf_counter(), 0
        for done in loop:
            if on_progress is not None and (done // BATCH > shown or done == self.num_episodes):
                shown = done // BATCH
                on_progress(done)
        self.seconds += time.perf_counter() - start
        return self.record()

    def record(self) -> Record:
        """The columns as a record."""
        cmdp, facts, totals, coins = self.cmdp, self.facts, self.totals, self.coins
        settings = {**cmdp.origin, **self.agent.settings(), "num_episodes": self.num_episodes, "run_seed": self.seed}
        if self.monitors is not None:
            settings |= self.monitors.settings()
        return Record(
            reward_values=facts.values[:, 0].copy(),
            utility_values=facts.values[:, 1].copy(),
            sources=np.array(SOURCES)[facts.sources],
            lams=facts.bounds[:, 0].copy(),
            utility_bounds=facts.bounds[:, 1].copy(),
            plan_ids=facts.plan_ids,
            optimum=cmdp.optimal_value() if isinstance(cmdp, LinearCMDP) else math.nan,
            threshold=cmdp.task.threshold,
            settings={**settings, **versions(), "seconds": self.seconds},
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
    told, true = agent.task.threshold + (agent.task.slack or 0.0), cmdp.evaluate(agent.task.safe_policy)[1]
    if not true >= told - TOLERANCE:
        raise Infeasible(
            f"the agent is told that its incumbent has utility {told}, and it has {true}: correct the slack"
        )
    certifier = getattr(agent, "certifier", None)
    if getattr(certifier, "name", "") == "fresh-data" and not cmdp.linearity_gap() <= TOLERANCE:
        raise Infeasible(f"P is not linear in the features, by {cmdp.linearity_gap():g}: use es.certify.Observation()")


def forget(k: int, episode: Episode, agent: Agent) -> None:
    """What a run without a journal does with its episodes."""


def _loop(
    cmdp: LinearCMDP, agent: Agent, streams: Streams, facts: Facts, first: int, tape: Tape | SampledTape | None
) -> Iterator[int]:
    if isinstance(agent, SoftmaxAgent) and can_compile(agent):
        return compiled_loop(cmdp, agent, streams, facts, first, None if tape is None else tape.trace)
    return plain_loop(cmdp, agent, streams, facts, first=first, note=forget if tape is None else tape.note)


def plain_loop(
    cmdp: LinearCMDP,
    agent: Agent,
    streams: Streams,
    facts: Facts,
    coin: np.random.Generator | None = None,
    coins: Coins | None = None,
    first: int = 0,
    note: Note = forget,
) -> Iterator[int]:
    """The loop for any agent, from episode `first` on; yields the number of episodes done. Mixtures need a coin."""
    kernel, H = running_sums(cmdp.P), cmdp.task.horizon
    states, actions = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64)
    states[0] = cmdp.task.initial_state
    current = None
    for k in range(first, len(facts.sources)):
        plan = agent.plan()
        component, acting = _toss(plan, k, coin, coins)
        if plan is not current:
            exact = cmdp.evaluate(plan.policy)
        if plan is not current or component is not None:
            current, policy = plan, running_sums(acting.table())
        facts.values[k], facts.bounds[k] = exact, (plan.lam, plan.utility_bound)
        facts.sources[k], facts.plan_ids[k] = SOURCES.index(plan.source), plan.id
        simulate(policy, kernel, *streams, states, actions)
        episode = Episode(states, actions, component=component)
        agent.learn(episode, plan_id=plan.id)
        note(k, episode, agent)
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
    cmdp: LinearCMDP,
    agent: OPSE,
    streams: Streams,
    facts: Facts,
    coin: np.random.Generator,
    coins: Coins,
    first: int = 0,
    trace: Trace | None = None,
) -> Iterator[int]:
    """The same for OPSE under `Observation`, compiled; yields now and then."""
    return _compiled(CompiledMixtureRun(cmdp, agent, streams, coin, coins, trace), facts, first, trace is not None)


def compiled_loop(
    cmdp: LinearCMDP, agent: SoftmaxAgent, streams: Streams, facts: Facts, first: int = 0, trace: Trace | None = None
) -> Iterator[int]:
    """The same for softmax agents, compiled; yields now and then."""
    return _compiled(CompiledRun(cmdp, agent, streams, trace), facts, first, trace is not None)


def _compiled(made: CompiledRun | CompiledMixtureRun, facts: Facts, first: int, settled: bool) -> Iterator[int]:
    done, ahead = first, FIRST_AHEAD
    try:
        while done < len(facts.sources):
            begun, stop = time.perf_counter(), min(done + ahead, len(facts.sources))
            made.advance(facts, done, stop)
            done = stop
            if settled:
                made.finish()  # whenever this yields, the agent has all that was learned and the plan in force
            yield done
            took = time.perf_counter() - begun
            ahead = min(2 * ahead, BATCH) if took < LONG / 4 else max(ahead // 2, 1) if took > LONG else ahead
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
    first: int = 0,
    note: Note = forget,
) -> Iterator[int]:
    """The loop for a problem given by functions: values are NaN, and what was collected goes into `totals` (K, 2)."""
    choices, transitions = streams
    task = cmdp.task
    for k in range(first, len(facts.sources)):
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
        episode = Episode(states, actions, component=component)
        agent.learn(episode, plan_id=plan.id)
        note(k, episode, agent)
        yield k + 1
