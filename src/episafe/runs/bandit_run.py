"""Running a bandit learner: plan, play, observe, learn; exact values of every policy deployed."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from episafe.agents.bandits.base import BanditAgent
from episafe.agents.bandits.oplb import OPLB
from episafe.agents.bandits.rule_agent import SOURCES
from episafe.agents.base import halt_of
from episafe.checks import TOLERANCE, as_distributions
from episafe.deployment.bandit_keeping import Keeper, Tally
from episafe.errors import Infeasible, InvalidProblem
from episafe.kernels.bandit_decision import REASONS
from episafe.kernels.bandit_rounds import BLOCK, World, expected, luck, observe, optima
from episafe.kernels.simulation import draw, running_sums
from episafe.monitors.round_monitors import Monitors
from episafe.problems.bandit import LinearBandit
from episafe.problems.bandit_actions import as_arms
from episafe.problems.bandit_identity import differing
from episafe.problems.bandit_policy import without_negatives
from episafe.problems.bandit_task import BanditTask
from episafe.runs.bandit_compiled import HALTED, OTHER, CompiledRun, Span, can_compile
from episafe.runs.columns import blank
from episafe.runs.record import Record
from episafe.storage.toml_settings import versions
from episafe.types import Array, IntArray


def run(
    bandit: LinearBandit,
    agent: BanditAgent,
    num_rounds: int = 10_000,
    seed: int = 0,
    *,
    first_round: int = 0,
    monitors: Monitors | None = None,
    folder: str | Path | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Run `agent` on `bandit`; the same seed gives the same record, bit for bit.

    Args:
        bandit: the world, known to this loop and not to the agent.
        agent: plans before each round and learns after it.
        num_rounds: rounds to play.
        seed: of the run's luck.
        first_round: where to begin: an agent restored after k rounds goes on with first_round=k as if never stopped.
        monitors: `es.bandits.Monitors(agent.task)` to watch the run, and to halt the agent where an alarm asks for it;
            the loop is not compiled then.
        folder: where to keep a checkpoint now and then, and the record at the end. A run that was killed is taken up
            by the same call with an agent built alike, and ends with the same record.
        on_progress: called now and then with the number of rounds done.

    Example:
        >>> import episafe as es
        >>> bandit = es.bandits.make("finite", seed=0)
        >>> record = es.bandits.run(bandit, es.bandits.OPLBSP(bandit.task, num_rounds=100), num_rounds=100)
        >>> float(record.violation()[-1])
        0.0
    """
    num_rounds, seed = _whole("num_rounds", num_rounds, 1), _whole("seed", seed, 0)
    first_round = _whole("first_round", first_round, 0)
    _refuse_other_types(bandit, agent)
    _check_same_problem(bandit, agent, range(first_round, first_round + num_rounds))
    start = time.perf_counter()
    tally = blank_tally(bandit, num_rounds)
    if monitors is not None and monitors.task is not agent.task:
        raise ValueError("the monitors were built for another task: build them from agent.task")
    if monitors is not None and folder is not None:
        raise ValueError("a run that is taken up could not go on with its monitors: give monitors= or folder=")
    compiled = monitors is None and can_compile(agent) and _arms_of_one_number(bandit, first_round, num_rounds)
    loop = compiled_loop if compiled else partial(plain_loop, monitors=monitors)
    kept = nullcontext() if folder is None else Keeper(Path(folder), agent, tally, (seed, first_round))
    with kept as keeper:
        known = 0 if keeper is None else keeper.take_up()
        cut = spans(first_round + known, num_rounds - known, known)
        for done in loop(bandit, agent, tally, cut, seed) if cut else ():
            if keeper is not None:
                keeper.keep(done)
            if on_progress is not None:
                on_progress(done)
    seconds = time.perf_counter() - start
    facts, reasons, best = tally
    settings = {"problem": "bandit", **bandit.origin, **agent.settings(), "num_rounds": num_rounds, "run_seed": seed}
    if monitors is not None:
        settings |= monitors.settings()
    record = Record(
        reward_values=facts.values[:, 0].copy(),
        utility_values=facts.values[:, 1].copy(),
        sources=np.array(SOURCES)[facts.sources],
        lams=facts.bounds[:, 0].copy(),
        utility_bounds=facts.bounds[:, 1].copy(),
        plan_ids=facts.plan_ids,
        optimum=float(best.mean()),
        threshold=bandit.task.threshold,
        settings={**settings, "reasons": _in_words(reasons), **versions(), "seconds": seconds},
        optima=best if bandit.task.changes else None,
    )
    if folder is not None:
        record.save(folder)
    return record


def spans(first_round: int, num_rounds: int, first_row: int = 0) -> list[Span]:
    """The rounds cut where blocks of luck end."""
    found, done = [], 0
    while done < num_rounds:
        position = (first_round + done) % BLOCK
        length = min(BLOCK - position, num_rounds - done)
        found.append(Span(length, first_row + done, first_round + done, position))
        done += length
    return found


def blank_tally(bandit: LinearBandit, num_rounds: int) -> Tally:
    """Room for a run."""
    best = np.full(num_rounds, math.nan if bandit.task.changes else bandit.optimal_value())
    return Tally(blank(num_rounds), np.zeros(HALTED + 1, dtype=np.int64), best)


def plain_loop(
    bandit: LinearBandit,
    agent: BanditAgent,
    tally: Tally,
    cut: Sequence[Span],
    seed: int,
    monitors: Monitors | None = None,
) -> Iterator[int]:
    """The loop for any agent; yields the number of rounds done after each span."""
    facts, reasons, best = tally
    world, current = _world(bandit), None
    for span in cut:
        chance = luck(seed, span.round // BLOCK)
        for i in range(span.length):
            k, row = span.round + i, span.row + i
            if bandit.task.changes:
                bandit.check_round(k)
                best[row] = bandit.optimal_value(k)
            plan = agent.plan(k if bandit.task.changes else None)
            if plan is not current:
                current, running = plan, running_sums(plan.probabilities)
                values = [expected(world.theta, which, plan.atoms, plan.probabilities) for which in range(2)]
                reason = _numbered(plan.reason)
            facts.values[row], facts.bounds[row] = values, (plan.lam, plan.utility_bound)
            facts.sources[row], facts.plan_ids[row] = SOURCES.index(plan.source), plan.id
            reasons[reason] += 1
            atom = draw(running, chance.choices[span.position + i])
            reward, utility = observe(world, plan.atoms, atom, chance, span.position + i)
            agent.learn(plan.atoms[atom], reward, utility)
            for alarm in [] if monitors is None else monitors.watch(plan, utility):
                if alarm.halts:
                    agent.halt(alarm.says)
        yield span.row + span.length


def compiled_loop(
    bandit: LinearBandit, agent: BanditAgent, tally: Tally, cut: Sequence[Span], seed: int
) -> Iterator[int]:
    """The same for agents that learn by the regression alone, compiled; it yields as often."""
    task, world = bandit.task, _world(bandit)
    num_arms = len(task.incumbent(cut[0].round)) if task.is_finite else 0
    made = CompiledRun(world, agent, num_arms, cut[0].round)
    arms, safe = (task.arms(0), task.incumbent(0)) if task.is_finite and not task.changes else _none(task.dim)
    try:
        for span in cut:
            if task.changes:
                arms, safe = _stacked(bandit, span)
                optima(world.theta, task.threshold, arms, num_arms, tally.best[span.row : span.row + span.length])
            made.advance(arms, safe, luck(seed, span.round // BLOCK), tally.facts, tally.reasons, span)
            made.finish()  # whenever this yields, the agent has all that was learned and the plan in force
            yield span.row + span.length
    finally:
        made.finish()  # also when the run is interrupted: what was learned stays learned


def _world(bandit: LinearBandit) -> World:
    return World(np.array([bandit.theta_r, bandit.theta_u]), bandit.task.noise, bandit.clicks)


def _none(dim: int) -> tuple[Array, Array]:
    return np.empty((0, dim)), np.empty(0)


def _stacked(bandit: LinearBandit, span: Span) -> tuple[Array, Array]:
    """Arms (m·n, d) and incumbents (m·n,) of the rounds of a span, checked."""
    rounds, task = range(span.round, span.round + span.length), bandit.task
    try:
        arms = as_arms("actions", np.concatenate([task.actions(k) for k in rounds]), task.dim)  # type: ignore[operator]
        safe = np.array([task.safe_policy(k) for k in rounds])
        safe = without_negatives(as_distributions("safe_policy", safe, (len(rounds), len(arms) // len(rounds))))
        utilities = (safe * (arms @ bandit.theta_u).reshape(safe.shape)).sum(axis=1)
        if (utilities < task.threshold + task.told_slack("a bandit") - TOLERANCE).any():
            raise InvalidProblem("some round has an incumbent without the slack")
        if bandit.clicks and np.abs(arms @ bandit.theta_r - 0.5).max() > 0.5 + TOLERANCE:
            raise InvalidProblem("some round has clicks with a mean outside [0, 1]")
    except ValueError:
        for k in rounds:
            bandit.check_round(k)  # finds the round and says what is wrong with it
    return arms, safe.ravel()


def _arms_of_one_number(bandit: LinearBandit, first_round: int, num_rounds: int) -> bool:
    """Whether every round has as many arms, as the compiled loop needs."""
    actions = bandit.task.actions
    if not callable(actions):
        return True
    return len({len(actions(k)) for k in range(first_round, first_round + num_rounds)}) == 1


def _numbered(reason: str) -> int:
    if halt_of(reason):
        return HALTED
    return REASONS.index(reason) if reason in REASONS else OTHER


def _in_words(reasons: IntArray) -> str:
    """How often a plan was not the outcome of a search, and why."""
    names = (*REASONS, "planning failed", "halted")
    said = [f"{count} x {names[i]}" for i, count in enumerate(reasons) if count and names[i]]
    return "; ".join(said) or "never"


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def _refuse_other_types(bandit: Any, agent: Any) -> None:
    if not isinstance(bandit, LinearBandit):
        hint = ": a task does not hold θ, which a run needs" if isinstance(bandit, BanditTask) else ""
        raise TypeError(f"run needs a LinearBandit, got {type(bandit).__name__}{hint}")
    if isinstance(agent, type):
        raise TypeError(f"run needs an agent, got the class {agent.__name__}: build it from bandit.task")
    if not isinstance(agent, BanditAgent):
        raise TypeError(f"run needs an agent such as OPLBSP(bandit.task, …), got {type(agent).__name__}")


def _check_same_problem(bandit: LinearBandit, agent: BanditAgent, rounds: range) -> None:
    """The agent may be told less (more noise, a larger norm, less slack), but of this problem."""
    ours, theirs = bandit.task, agent.task
    names = [name for name in ("dim", "threshold") if getattr(ours, name) != getattr(theirs, name)]
    names = names or list(filter(None, [differing(ours, theirs, rounds)]))
    if names:
        raise ValueError(f"the agent was built for another problem, {names[0]} differ: build it from bandit.task")
    if theirs.noise < ours.noise or theirs.norm_bound < ours.norm_bound:
        raise Infeasible(
            "the agent was told of less noise or a smaller norm than the bandit has: its bound does not hold"
        )
    if theirs.slack is not None and theirs.slack > ours.told_slack("a bandit") + TOLERANCE:
        raise Infeasible(
            f"the agent was told of the slack {theirs.slack:.12g}, the bandit has {ours.slack:.12g}: what relies on "
            "it does not hold; build the agent from bandit.task"
        )
    if isinstance(agent, OPLB):
        true = bandit.evaluate(bandit.safe_policy())[1]
        if abs(agent.known_utility - true) > TOLERANCE:
            raise Infeasible(
                f"OPLB was told known_utility={agent.known_utility:.12g}, the incumbent has {true:.12g}: its bound "
                "does not hold; give the exact utility"
            )
