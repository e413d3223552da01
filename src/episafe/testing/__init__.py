"""Checks for your own agents, certifiers and environments. Each raises AssertionError with one sentence per fault.

A failure says what is wrong, the value, and the remedy. The functions need no test framework; call them in a test.
"""

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import get_args

import numpy as np

from episafe.algorithms.fixed import Fixed
from episafe.certify.safe_agent import SafeAgent
from episafe.core.agent import Agent, Certifier
from episafe.core.checks import TOLERANCE, as_probability, require
from episafe.core.errors import InvalidEpisode
from episafe.core.policy import Mixture, Policy
from episafe.core.task import Problem
from episafe.core.types import Array, Episode, Level, Plan
from episafe.envs import make
from episafe.problems.linear import LinearCMDP
from episafe.session.audit import audit
from episafe.session.session import open as open_session
from episafe.simulation.checks import check_problem
from episafe.simulation.record import Record
from episafe.simulation.run import run
from episafe.simulation.worlds import make_streams, world_of

__all__ = ["check_agent", "check_certifier", "check_environment"]

FALSE_ALARM = 1e-3  # the probability with which a certifier that keeps its promise is rejected, at most
LEVELS: tuple[Level, ...] = get_args(Level)
_require = partial(require, error=AssertionError)
PLAIN = str | int | float | bool | None


def check_agent(
    make_agent: Callable[[Problem], Agent], problem: Problem | None = None, num_episodes: int = 30, seed: int = 0
) -> None:
    """Check that an agent implements the interface of `es.Agent` and that its claims match its level.

    Args:
        make_agent: problem -> a new agent, built in the same way each time; the class itself if that suffices.
        problem: the problem to play; `es.make("tabular", seed=0)` by default.
        num_episodes: how many episodes are played.
        seed: the seed of these episodes.
    """
    problem = make("tabular", seed=0) if problem is None else problem
    agent, twin = make_agent(problem), make_agent(problem)
    _require(isinstance(agent, Agent), f"{type(agent).__name__} is not an es.Agent: derive it from es.Agent")
    _require(agent.level in LEVELS, f"the level is {agent.level!r}: give one of {', '.join(LEVELS)}")
    _require_no_path(agent, problem, "the agent", "keep self.task only and pass the problem to super().__init__")
    wrong = [key for key, value in agent.settings().items() if not isinstance(value, PLAIN)]
    _require(not wrong, f"settings()[{wrong[:1]}] is neither a text nor a number: records keep plain values only")
    world = world_of(problem, make_streams(seed), agent.uses_traces)
    for k in range(num_episodes):
        plan, other = agent.plan(), twin.plan()
        text = f"plan {plan.id} has a policy of type {type(plan.policy).__name__}"
        _require(isinstance(plan.policy, Policy | Mixture), f"{text}: return an es.Policy, e.g. es.TablePolicy(table)")
        episode = world.play(k, *world.draw(plan)[::-1])
        seen = problem.task.read(episode)
        same = plan.source == other.source and np.array_equal(plan.bounds, other.bounds, equal_nan=True)
        one, two = plan.parts, other.parts
        same = (
            same
            and np.array_equal(one.weights, two.weights)
            and all(
                _same(*pair, seen, problem.task.is_listed) for pair in zip(one.components, two.components, strict=True)
            )
        )
        advice = "use no randomness and no clock in decide()"
        _require(same, f"two agents with the same episodes plan differently before episode {k}: {advice}")
        _check_plan(plan, agent, seen)
        actions = np.array(episode.actions)
        agent.learn(episode, plan.id)
        _require(np.array_equal(actions, episode.actions), "learn() changed the arrays of the episode: copy them first")
        _check_refusals(twin, episode, other.id)
        twin.learn(episode, other.id)
    first, second = (run(problem, make_agent(problem), num_episodes, seed) for _ in range(2))
    _require(
        _same_records(first, second), f"two runs with the seed {seed} differ: use no clock and no global randomness"
    )


def _check_plan(plan: Plan, agent: Agent, seen: Episode) -> None:
    """Check one plan: policy, bounds, source and level."""
    task, m = agent.task, agent.task.num_constraints
    for one in plan.parts.components:
        for row in _answers(one, seen, task.is_listed):
            right = np.isfinite(row).all() and row.min() >= -TOLERANCE and np.abs(row.sum(-1) - 1).max() <= TOLERANCE
            _require(right, f"plan {plan.id} has rows that sum to {row.sum(-1).min():.6g}: normalise its probabilities")
    shape = np.shape(plan.bounds)
    _require(shape == (m,), f"plan {plan.id} has bounds of shape {shape}: give one per limit, shape ({m},)")
    claimed, allowed = LEVELS.index(plan.level), LEVELS.index(agent.level)
    text = f"plan {plan.id} has the level {plan.level!r} and its agent {agent.level!r}"
    _require(claimed >= allowed, f"{text}: claim only what is proved")
    if plan.source == "safe":
        same = all(
            one is task.incumbent or _same(one, task.incumbent, seen, task.is_listed) for one in plan.parts.components
        )
        _require(same, f"plan {plan.id} is 'safe' and deploys another policy: return self.incumbent_plan(reason)")
    elif plan.level == "theorem":
        reached = bool((plan.bounds >= task.thresholds).all())
        text = f"plan {plan.id} claims a theorem with the bounds {np.asarray(plan.bounds).tolist()}"
        _require(reached, f"{text}, below the limits {task.thresholds.tolist()}: deploy the incumbent instead")


def _check_refusals(agent: Agent, episode: Episode, plan_id: int) -> None:
    """Check that episodes which do not fit are refused; what they change shows in later plans."""
    for words, bad in (("too few actions", replace(episode, actions=episode.actions[:-1])), ("no content", Episode())):
        try:
            agent.learn(bad, plan_id)
        except InvalidEpisode:
            continue
        raise AssertionError(f"learn() accepts an episode with {words}: write observe() and leave learn() to es.Agent")


def check_certifier(
    make_certifier: Callable[[], Certifier],
    make_problem: Callable[[int], LinearCMDP] | None = None,
    num_runs: int = 40,
    num_episodes: int = 300,
) -> None:
    """Check that a certifier can be audited, and that its claims are true in runs with known exact values.

    Claims are counted in `num_runs` runs, each on another problem. In half of them reports of bad episodes are lost. A
    certifier that keeps its promise is rejected with probability at most 1/1000.

    Args:
        make_certifier: () -> a new certifier whose settings() state delta.
        make_problem: seed -> a problem with known kernel; small random ones by default. Certifiers that use traces
            need an exogenous one, e.g. lambda seed: es.make("inventory", seed=seed).
        num_runs: the number of runs.
        num_episodes: the length of a run.
    """
    certifier, problem_of = make_certifier(), make_problem or _random
    _require(isinstance(certifier, Certifier), "it is not a Certifier: derive it from episafe.core.agent.Certifier")
    certifier.start(problem_of(0).task)
    settings = certifier.settings()
    missing = [key for key in ("certifier", "delta", "statement") if not settings.get(key)]
    _require(not missing, f"settings() has no {missing[:1]}: sessions record name, delta and the statement")
    _check_session(make_certifier, problem_of(0))
    false, tried, first, delta = [0, 0], 0, "", as_probability("delta", settings["delta"])
    for seed in range(num_runs):
        faults, num_tried = _false_claims(make_certifier(), problem_of(seed), seed, num_episodes)
        tried, first = tried + num_tried, first or next(iter(faults), "")
        false[seed % 2] += bool(faults)
    _require(tried > 0, f"only the incumbent was deployed in {num_runs} runs: give longer runs or another make_problem")
    for count, words, n in ((false[0], "", (num_runs + 1) // 2), (false[1], " with lost reports", num_runs // 2)):
        chance = math.fsum(math.comb(n, i) * delta**i * (1 - delta) ** (n - i) for i in range(count, n + 1))
        text = f"{count} of {n} runs{words} have a false claim, at delta = {delta:g} (first: {first})"
        _require(chance >= FALSE_ALARM / 2, f"{text}: that has probability {chance:.2g}; correct the proof or the code")


def _check_session(make_certifier: Callable[[], Certifier], problem: LinearCMDP) -> None:
    """Check that evidence() changes nothing, and that an audit reproduces a session from recorded evidence alone."""
    agents = [SafeAgent(problem, make_certifier(), candidates=_candidates(problem)) for _ in range(2)]
    world = world_of(problem, make_streams(0), agents[0].uses_traces)
    with TemporaryDirectory() as folder:
        with open_session(folder, agents[0]) as session:
            for k in range(40):
                d = session.deploy()
                episode, before = world.play(k, d.policy, d.component), session.bounds()
                agents[0].certifier.evidence(k, problem.task.read(episode))
                same = all(np.array_equal(bound, before[name]) for name, bound in session.bounds().items())
                _require(same, "evidence() moved a bound: only apply() may change the state")
                session.report(d.id, episode)
        result = audit(folder, agents[1])
    text = f"the audit of a session fails ({', '.join(map(str, result.findings))})"
    _require(result.passed, f"{text}: bounds may depend only on the arguments of add, deployed and apply")


def _false_claims(certifier: Certifier, problem: LinearCMDP, seed: int, num_episodes: int) -> tuple[list[str], int]:
    """Return what a run claims against the exact values, and how often more than the incumbent was deployed."""
    task, given = problem.task, _candidates(problem)
    agent = SafeAgent(problem, certifier, candidates=given)
    world, b = world_of(problem, make_streams(seed), agent.uses_traces), task.thresholds
    exact = {name: np.atleast_1d(problem.evaluate(table)[1]) for name, table in given.items()}
    found, tried = [], 0
    for k in range(num_episodes):
        plan = agent.plan()
        _require(not plan.reason.startswith("planning failed"), f"{plan.reason}: plan() and consult() must not raise")
        component, policy = world.draw(plan)
        episode = world.play(k, policy, component)
        if plan.source != "safe":
            tried += 1
            new = [one for one in plan.parts.components if one is not task.incumbent and one.name not in exact]
            exact |= {one.name: np.atleast_1d(problem.evaluate(one)[1]) for one in new}
            true, text = np.atleast_1d(problem.evaluate(plan.policy)[1]), f"bounds {plan.bounds.tolist()}"
            if not (plan.bounds >= b).all():
                found.append(f"a plan with {text} is deployed, below {b.tolist()}")
            if (true < b - TOLERANCE).any() or (plan.bounds > true + TOLERANCE).any():
                found.append(f"a plan with {text} has the utilities {true.tolist()}")
        if seed % 2 and (task.read(episode).total_utility < task.stated_utilities).any():
            certifier.abandoned(plan.id)  # the report is lost because the episode was bad
        else:
            agent.learn(episode, plan.id)
        for name, bound in agent.bounds().items():
            if (bound > exact.get(name, np.inf) + TOLERANCE).any():
                found.append(f"{name} has the bounds {bound.tolist()} and the utilities {exact[name].tolist()}")
    return found, tried


def _candidates(problem: LinearCMDP) -> dict[str, Array]:
    """Return a greedy and a careless policy: certificates must hold for any proposals."""
    task = problem.task
    assert task.utilities is not None
    eye = np.eye(task.num_actions or 1)
    return {"greedy": eye[task.reward.argmax(axis=-1)], "careless": eye[task.utilities[0].argmin(axis=-1)]}


def _random(seed: int) -> LinearCMDP:
    """Return a small random problem whose incumbent is the safest policy."""
    rng = np.random.default_rng([seed, 77])
    P, reward, utility = rng.dirichlet(np.ones(3), (3, 3, 2)), rng.random((3, 3, 2)), rng.random((3, 3, 2)) > 0.4
    return LinearCMDP(P, reward, utility.astype(float), threshold_share=0.5)


def check_environment(problem: Problem, num_episodes: int = 200, seed: int = 0) -> None:
    """Check a problem by playing it and, if the kernel is known, by exact computation.

    Args:
        problem: an `es.LinearCMDP`, an `es.SampledCMDP` or what `es.from_gymnasium` returns.
        num_episodes: how many episodes of the incumbent are played.
        seed: the seed of these episodes.
    """
    errors = [text for verdict, text in check_problem(problem, num_episodes, seed) if verdict == "error"]
    _require(not errors, errors[0] if errors else "")
    first, second = (run(problem, Fixed(problem, "uniform"), 20, seed) for _ in range(2))
    _require(
        _same_records(first, second), f"two runs with the seed {seed} differ: draw from the generator that is given"
    )
    if isinstance(problem, LinearCMDP):
        _check_listed(problem)


def _check_listed(problem: LinearCMDP) -> None:
    task = problem.task
    rows = problem.P.sum(axis=-1)
    wrong = float(rows.flat[np.abs(rows - 1).argmax()])
    _require(abs(wrong - 1) <= TOLERANCE and problem.P.min() >= 0, f"a row of P sums to {wrong:.6g}: normalise P")
    for name, signal in (("reward", task.reward), ("utility", task.utilities)):
        if signal is not None:
            worst = float(signal.flat[np.abs(signal - 0.5).argmax()])
            _require(abs(worst - 0.5) <= 0.5 + TOLERANCE, f"a {name} is {worst:.6g}: rescale it to [0, 1] per step")
    gap = problem.linearity_gap()
    _require(gap <= TOLERANCE, f"P is not linear in phi, by {gap:.3g}: give other features, or phi=None for one-hot")
    utility, told = problem.evaluate(task.incumbent)[1], task.stated_utilities
    text = (
        f"the incumbent has the utilities {np.atleast_1d(utility).tolist()}, and threshold + slack is {told.tolist()}"
    )
    _require((np.atleast_1d(utility) >= told - TOLERANCE).all(), f"{text}: lower the slack or give a safer incumbent")
    _require_no_path(task, problem, "the task", "give the agent no function or array that contains the kernel")


def _answers(policy: Policy, seen: Episode, listed: bool) -> list[Array]:
    """Return the probabilities of a policy: its table, or its answers at the states of an episode."""
    if listed:
        return [policy.table()]
    return [policy.probabilities(h, state) for h, state in enumerate(tuple(seen.states)[:-1])]


def _same(one: Policy, other: Policy, seen: Episode, listed: bool) -> bool:
    """Return whether two policies give the same probabilities."""
    arms = [np.asarray(vars(policy).get("actions")) for policy in (one, other)]  # of bandits
    answers = [_answers(policy, seen, listed) for policy in (one, other)]
    return np.array_equal(arms[0], arms[1]) and all(map(np.array_equal, *answers))


def _same_records(one: Record, other: Record) -> bool:
    """Return whether two records have the same columns."""
    pairs = zip(one.columns().values(), other.columns().values(), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _require_no_path(start: object, problem: Problem, whose: str, remedy: str) -> None:
    """Raise if the problem or its kernel can be reached from an object by any chain of references."""
    P, waiting, seen = vars(problem).get("P"), [start], {id(start)}
    while waiting:
        one = waiting.pop()
        secret = one is problem or (P is not None and isinstance(one, np.ndarray) and one.shape == P.shape)
        if secret and (one is problem or np.array_equal(one, P)):  # type: ignore[arg-type]
            raise AssertionError(f"{whose} can reach {'the problem' if one is problem else 'P'}: {remedy}")
        if isinstance(one, FunctionType):
            inside = [*(one.__defaults__ or ()), *(cell.cell_contents for cell in one.__closure__ or ())]
        else:
            inside = gc.get_referents(one)
        for part in inside:
            if id(part) not in seen and not isinstance(part, ModuleType | type | FrameType | BuiltinFunctionType):
                seen.add(id(part))
                waiting.append(part)
