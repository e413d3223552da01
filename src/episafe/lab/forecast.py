"""Forecast how fast an agent gains: run it on models of the system that are made from the episodes seen so far.

Each model is made from a resample of the episodes, so the models differ as much as the episodes leave open. There is no
forecast if the models disagree, or if the best policy would reach states that no episode reached.
"""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np

from episafe.certify.family import Family
from episafe.certify.replays import read_trace
from episafe.certify.safe_agent import SafeAgent
from episafe.core.errors import InvalidProblem
from episafe.core.task import Problem, TableFeatures, Task
from episafe.core.types import Array, Document, Episode, IntArray, State, is_outside, key_of
from episafe.kernels.tabular_optimum import occupancy
from episafe.problems.linear import LinearCMDP
from episafe.problems.moves import NOWHERE, ListedMove
from episafe.simulation.run import run

MODELS = 9  # of resampled episodes
LENGTHS = 1_000, 3_000, 10_000  # of a run; the next one only where half of the gain was not reached
SECONDS = 20.0  # of CPU time, after which no longer run begins
PRIOR = 2.0  # episodes that all steps together count for at each one, where steps differ
LARGEST, MOST_CALLS = 64 << 20, 200_000  # bytes of P; calls of `move`
FEW = 10  # times that a state and action must be seen to be known
UNSEEN = 0.3  # of the best policy's steps, or of the actions in visited states: if more are guessed, no forecast
DISAGREE = 6.0  # times between the upper and the lower quartile of the forecasts: beyond, there is no forecast
SMALL = 0.002  # of the incumbent's reward: a smaller gain is none
WINDOW = 20  # episodes over which gains are averaged
SHOWN = 100, 300, 1_000  # episodes at which gains are given


@dataclass(frozen=True)
class Forecast:
    """How long it takes; a guide, not a bound.

    Attributes:
        half: episodes until half of the possible gain is there; ∞ if that takes too long; NaN if it is unknown.
        text: the forecast in one or two sentences, with its reasons.
        gains: the share of the possible gain after so many episodes, where it is known.
    """

    half: float
    text: str
    gains: dict[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        shares = ", ".join(f"{round(share, 2) + 0.0:.0%} after {k:,}" for k, share in self.gains.items())
        return self.text + (f"; expected gain {shares}" if shares else "")


MakeAgent = Callable[[LinearCMDP], SafeAgent]


def forecast(
    task: Task, episodes: Sequence[Episode], make_agent: MakeAgent = SafeAgent, seed: int = 0, num_models: int = MODELS
) -> Forecast:
    """Return after how many episodes half of the possible gain is there.

    Args:
        task: the task, whose slacks are known.
        episodes: of the incumbent, or of any policies; with their traces, if the task has `move`.
        make_agent: builds the agent that will be deployed, for a model of the system.
        seed: of the models and of the runs.
        num_models: how many models are made.
    """
    if any(one.slack is None for one in task.constraints):
        return _cannot_tell("the slack is unknown; measure it with es.measure_slack")
    try:
        models = [model_of(task, episodes, np.random.default_rng([seed, i])) for i in range(num_models)]
    except InvalidProblem as error:
        return _cannot_tell(str(error))
    _, start, optimum, guessed, untried = zip(*models, strict=True)
    if np.median(np.subtract(optimum, start)) <= SMALL * max(float(np.median(start)), 1.0):
        return _cannot_tell("the episodes show no policy that gains more than the incumbent; try other actions")
    guesses, gap = float(np.median(guessed)), float(np.median(untried))
    if max(guesses, gap) > UNSEEN:
        what = f"{guesses:.0%} of the steps of the best policy would be in states and actions that few episodes show"
        if gap > UNSEEN:
            what = f"{gap:.0%} of the actions were hardly tried in the states that the episodes visit"
        return _cannot_tell(f"{what}; give episodes of other policies too")
    began, halves, runs = time.process_time(), [math.inf] * num_models, list[Array]()
    for length in LENGTHS:
        if time.process_time() - began > SECONDS:
            break
        runs = [_gains(*one[:3], make_agent, length, seed + i) for i, one in enumerate(models)]
        halves, longest = [half_way(one) for one in runs], length
        if sum(map(math.isfinite, halves)) > num_models / 2:
            break
    low, half, high = (sorted(halves)[i] for i in (num_models // 4, num_models // 2, num_models - 1 - num_models // 4))
    shares = {k: float(np.median([_mean_at(one, k) for one in runs])) for k in SHOWN if k <= longest}
    if math.isinf(half):
        return Forecast(math.inf, f"half of the gain takes more than {longest:,} episodes", shares)
    if high / low > DISAGREE:
        return _cannot_tell(f"the forecasts range from {count(low)} to {count(high)} episodes; give more episodes")
    text = f"half of the gain after about {count(half)} episodes ({count(low)} to {count(high)} in simulations of "
    return Forecast(half, f"{text}{num_models} models made from {len(episodes)} episodes)", shares)


def _cannot_tell(reason: str) -> Forecast:
    return Forecast(math.nan, f"cannot tell: {reason}")


def _gains(problem: LinearCMDP, start: float, optimum: float, make_agent: MakeAgent, length: int, seed: int) -> Array:
    """Return the gain of each deployed policy, as a share of what is possible, in a run on a model."""
    record = run(problem, make_agent(problem), length, seed)
    return np.asarray((record.reward_values - start) / (optimum - start))


def _mean_at(values: Array, k: int) -> float:
    return float(values[max(k - max(k // 10, 1), 0) : k].mean())


def half_way(values: Array) -> float:
    """Return the middle of the first `WINDOW` episodes whose mean gain is at least half, or inf."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    reached = np.flatnonzero((sums[WINDOW:] - sums[:-WINDOW]) / WINDOW >= 0.5)
    return float(reached[0] + WINDOW // 2) if len(reached) else math.inf


def count(episodes: float) -> str:
    """Return a number of episodes with two digits, because a forecast is not more precise."""
    if not math.isfinite(episodes):
        return f"more than {LENGTHS[-1]:,}"
    unit = 10 ** max(math.floor(math.log10(max(episodes, 1))) - 1, 0)
    return f"{max(round(episodes / unit) * unit, 1):,.0f}"


# models


def model_of(
    task: Task, episodes: Sequence[Episode], rng: np.random.Generator
) -> tuple[LinearCMDP, float, float, float, float]:
    """Return a model made from a resample of episodes in canonical form; raise InvalidProblem if none can be made.

    After the model come the expected rewards of the incumbent and of the best policy that keeps the limits, the share
    of that policy's steps in states and actions that few episodes show, and the share of the actions that few episodes
    show, in the states that the episodes visit.
    """
    drawn = [episodes[i] for i in rng.integers(len(episodes), size=len(episodes))]
    visits: Array | None = None
    if task.move is not None and episodes[0].trace is not None:
        arrays = _by_chance(task, task.move, drawn) if isinstance(task.move, ListedMove) else _by_traces(task, drawn)
    else:
        arrays, visits = _by_steps(task, episodes, drawn, rng)
    m, limits = task.num_constraints, task.constraints
    observed = np.mean([one.total_utility for one in episodes], axis=0)
    utilities = arrays.pop("utility")
    same = arrays.pop("time_homogeneous", task.time_homogeneous)
    told = {"utility": utilities[0] if m == 1 else list(utilities), "time_homogeneous": same}
    free = LinearCMDP(**arrays, **told, threshold=0.0 if m == 1 else [0.0] * m)
    incumbent = np.atleast_1d(free.evaluate(free.task.incumbent)[1])
    surplus = np.maximum(observed - task.thresholds, task.slacks)
    kept = np.maximum(incumbent - surplus, 1e-6)
    slack = np.minimum(task.slacks, (incumbent - kept) * (1 - 1e-9)).tolist()
    told |= {"threshold": kept.tolist() if m > 1 else float(kept[0]), "slack": slack if m > 1 else slack[0]}
    told["names"] = [one.name for one in limits] if m > 1 else ()
    try:
        least = task.least_totals.tolist()
        problem = LinearCMDP(**arrays, **told, least_total=least if m > 1 else least[0])
    except InvalidProblem:  # the model joins steps of different episodes, so its least total may be lower
        problem = LinearCMDP(**arrays, **told)
    if task.move is None and not (task.knows_reward and task.knows_utility):  # the agent will learn both
        unknown = tuple(replace(one, utility=None) for one in problem.task.constraints)
        problem.task = replace(problem.task, reward=None, constraints=unknown)
    if task.move is not None and not task.is_listed:  # floors need listed states, and the agent will have none
        problem.task = replace(problem.task, move=partial(_moved, arrays["move"]), support=None)
    start, optimum = problem.evaluate(problem.task.incumbent)[0], problem.optimal_value()
    if visits is None:
        return problem, start, optimum, 0.0, 0.0
    occupied, few = occupancy(problem.P, problem.optimal_policy().table(), problem.task.initial_state), visits < FEW
    guessed = float(occupied.sum(axis=0)[few].sum() / len(problem.P))
    untried = float(visits.sum(axis=1) @ few.mean(axis=1) / visits.sum())
    return problem, start, optimum, guessed, untried


def _by_chance(task: Task, move: ListedMove, episodes: Sequence[Episode]) -> Document:
    """Return the arrays of a model that moves as the system does, by the frequencies of chance."""
    n, _, _, W = move.next_states.shape
    counts, number = np.zeros((task.horizon or 0, W)), {key_of(w): i for i, w in enumerate(move.values)}
    for episode in episodes:
        for h, w in enumerate(episode.trace[1]):
            if w is not None and key_of(w) in number:
                counts[h, number[key_of(w)]] += 1
    pooled = counts.sum(axis=0) / max(counts.sum(), 1)
    rows = counts + PRIOR * pooled if n > 1 else pooled[None]
    possible = (move.next_states != NOWHERE).all(axis=2)  # (n, S, W)
    law = np.where(possible, rows[:, None, :], 0.0)
    law += np.where(law.sum(axis=2, keepdims=True) > 0, 0.0, possible)  # where nothing was seen, all is possible
    law /= law.sum(axis=2, keepdims=True)
    P, reward, utilities = move.means(law)
    shape = task.horizon or 0, *P.shape[1:]
    P, reward = np.broadcast_to(P, shape), np.broadcast_to(reward, shape[:3])
    utilities = np.array([np.broadcast_to(one, shape[:3]) for one in utilities])
    features = task.features.phi if isinstance(task.features, TableFeatures) else None
    arrays = {"P": P, "reward": reward, "utility": utilities, "safe_policy": task.incumbent.table(), "phi": features}
    return arrays | {"initial_state": task.initial_state, "move": move, "law": law}


def _by_traces(task: Task, episodes: Sequence[Episode]) -> Document:
    """Return the arrays of a model of the states that any actions lead to on the chance values of each step.

    Raise InvalidProblem if there are too many.
    """
    assert task.move is not None
    H, A, m = task.horizon or 0, task.num_actions or 0, task.num_constraints
    traces = [read_trace(task, one.trace) for one in episodes if one.trace is not None]
    values = {key_of(w): w for trace in traces for w in trace if w is not None}
    number, W = {key: i for i, key in enumerate(values)}, len(values)
    law, states, index = np.zeros((H, W)), [task.initial_state], {task.key(task.initial_state): 0}
    for trace in traces:
        for h, w in enumerate(trace):
            if w is not None:
                law[h, number[key_of(w)]] += 1
    rows, here = list[tuple[int, int, int, int, int, float, Array]](), [0]
    for h in range(H):
        after = dict[int, None]()
        for s, a, w in product(here, range(A), np.flatnonzero(law[h]).tolist()):
            try:
                following, reward, utilities = task.move(h, states[s], a, list(values.values())[w])
            except Exception:  # of a user's function: this value does not come here
                continue
            t = index.setdefault(task.key(following), len(states))
            if t == len(states):
                states.append(following)
            after[t] = None
            rows.append((h, s, a, w, t, reward, np.asarray(utilities)))
        here = list(after)
        if len(rows) > MOST_CALLS or 8 * H * A * len(states) ** 2 > LARGEST:
            raise InvalidProblem(f"chance leads to more than {len(states):,} states, too many for a model")
    shape = H, len(states), A, W
    comes, rewards, utilities = np.full(shape, NOWHERE), np.zeros(shape), np.zeros((*shape, m))
    for h, s, a, w, t, earned, seen in rows:
        comes[h, s, a, w], rewards[h, s, a, w], utilities[h, s, a, w] = t, earned, seen
    elsewhere = (comes == NOWHERE).any(axis=2).all(axis=2)
    comes[elsewhere] = np.nonzero(elsewhere)[1][:, None, None]  # no trace leads there
    move = ListedMove(tuple(range(W)), comes, rewards, utilities)
    weights = np.where((comes != NOWHERE).all(axis=2), np.maximum(law[:, None, :], elsewhere[..., None]), 0.0)
    weights /= weights.sum(axis=2, keepdims=True)
    P, mean, means = move.means(weights)
    arrays = {"P": P, "reward": mean, "utility": np.array(means), "safe_policy": _incumbent(task, states), "phi": None}
    return arrays | {"time_homogeneous": False, "initial_state": 0, "move": move, "law": weights}


def _moved(move: ListedMove, h: int, state: int, action: int, w: object) -> tuple[int, float, Array]:
    return move(h, state, action, w)


def _by_steps(
    task: Task, every: Sequence[Episode], episodes: Sequence[Episode], rng: np.random.Generator
) -> tuple[Document, Array]:
    """Return the arrays of a model with the frequencies of steps, and how often each pair was seen, (S, A).

    A pair that no episode shows behaves as another action in the same state, drawn at random, or else as any pair.
    """
    if not task.one_hot and not task.is_listed:
        raise InvalidProblem("the features do not distinguish states; use es.features.OneHot, or list the states")
    H, A, m = task.horizon or 0, task.num_actions or 0, task.num_constraints
    index: dict[Hashable, int] = {s: s for s in range(task.num_states or 0)}
    states: list[State] = list(range(len(index)))
    for state in (one for episode in every for one in episode.states):
        if index.setdefault(task.key(state), len(index)) == len(states):
            states.append(state)
    S, h = len(states), np.arange(H)
    if 8 * S * S * A * (1 if task.time_homogeneous else H) > LARGEST:
        raise InvalidProblem(f"a model of {S:,} states, {A} actions and {H} steps is too large")
    counts, signals = np.zeros((H, S, A, S)), np.zeros((1 + m, S, A))
    for episode in episodes:
        path: IntArray = np.array([index[task.key(state)] for state in episode.states])
        actions = np.asarray(episode.actions, dtype=np.int64)
        np.add.at(counts, (h, path[:-1], actions, path[1:]), 1.0)
        if episode.rewards is not None:
            for signal, earned in zip(signals, (episode.rewards, *episode.utilities.T), strict=True):
                np.add.at(signal, (path[:-1], actions), earned)
    outside = [i for i, state in enumerate(states) if is_outside(state)]
    counts[:, outside], signals[:, outside] = (
        counts[:, outside].sum(axis=2, keepdims=True), signals[:, outside].sum(axis=2, keepdims=True)
    )  # fmt: skip  # no policy acts there
    pooled = counts.sum(axis=0)
    visits = pooled.sum(axis=2)
    times, seen = visits.copy(), visits > 0
    known, unseen = np.argwhere(seen), np.argwhere(~seen)
    like = known[rng.integers(len(known), size=len(unseen))]
    for row, s in enumerate(unseen[:, 0].tolist()):
        if seen[s].any():
            like[row] = s, rng.choice(np.flatnonzero(seen[s]))
    at, of = (unseen[:, 0], unseen[:, 1]), (like[:, 0], like[:, 1])
    pooled[at], visits[at] = pooled[of], visits[of]
    signals[(slice(None), *at)] = signals[(slice(None), *of)]
    pooled /= visits[..., None]
    signals /= visits
    P = np.broadcast_to(pooled, (H, S, A, S))
    if not task.time_homogeneous:
        P = counts + PRIOR * pooled
        P = P / P.sum(axis=3, keepdims=True)
    reward, *utilities = (np.broadcast_to(one, (H, S, A)) for one in signals)
    if task.knows_reward:
        reward = np.array([[task.reward_at(step, state) for state in states] for step in range(H)])
    if task.knows_utility:
        each = [[task.utility_at(step, state) for state in states] for step in range(H)]
        utilities = list(np.moveaxis(np.array(each), 2, 0))
    policy = _incumbent(task, states)
    features = task.features.phi if isinstance(task.features, TableFeatures) else None
    arrays = {"P": P, "reward": reward, "utility": np.array(utilities), "safe_policy": policy, "phi": features}
    return arrays | {"initial_state": index[task.key(task.initial_state)]}, times


def _incumbent(task: Task, states: Sequence[State]) -> Array:
    """Return the table (H, S, A) of the incumbent; no policy acts outside."""
    even, act = np.full(task.num_actions or 0, 1 / (task.num_actions or 1)), task.incumbent.probabilities
    return np.array([[even if is_outside(s) else act(h, s) for s in states] for h in range(task.horizon or 0)])


def with_rule(problem: LinearCMDP) -> SafeAgent:
    """Return an agent with one good rule of a user: half of the time it acts as the best policy does."""
    table = (problem.optimal_policy().table() + problem.task.incumbent.table()) / 2
    return SafeAgent(problem, candidates={"rule": table})


def with_family(problem: LinearCMDP) -> SafeAgent:
    """Return an agent with a family of rules, from the incumbent to the best policy."""
    best, incumbent = problem.optimal_policy().table(), problem.task.incumbent.table()
    return SafeAgent(problem, family=Family(lambda part: part * best + (1 - part) * incumbent, {"part": (0.0, 1.0)}))


WAYS: dict[str, tuple[str, MakeAgent]] = {  # for systems without `move`
    "planner": ("es.SafeAgent(problem)", SafeAgent),
    "candidates": ("es.SafeAgent(problem, candidates={name: rule}), with one good rule of yours", with_rule),
    "family": (
        "es.SafeAgent(problem, family=es.Family(make_rule, space)), with a family that contains a good rule",
        with_family,
    ),
}


def recommend(task: Task, episodes: Sequence[Episode], seed: int = 0) -> list[str]:
    """Return forecasts by way of use, the recommended way, and what would help most, in one sentence each."""
    if task.move is not None:
        found = forecast(task, episodes, seed=seed)
        helps = "200 logged episodes of any policy: give each to agent.learn(episode) before the first deployment"
        return [
            f"hindsight: {found}",
            "recommended: hindsight, es.SafeAgent(problem)",
            f"what would help most: {helps}",
        ]
    numbers = {"planner": MODELS}  # the others are slower to simulate
    found_by = {name: forecast(task, episodes, make, seed, numbers.get(name, 3)) for name, (_, make) in WAYS.items()}
    lines = [f"{name}: {found}" for name, found in found_by.items()]
    best = min(found_by, key=lambda name: (math.isnan(found_by[name].half), found_by[name].half))
    if not math.isfinite(found_by[best].half):
        best = "candidates"  # they need no states
    helps = "two rules of your own as candidates, one cautious and one bold"
    if best != "planner" and math.isfinite(found_by[best].half):
        helps = "move= and info['chance'], if the random inputs are seen and do not depend on the actions: hindsight"
    return [*lines, f"recommended: {best}, {WAYS[best][0]}", f"what would help most: {helps}"]


def episodes_of(problem: Problem, num_episodes: int, seed: int) -> list[Episode]:
    """Return episodes of the incumbent in canonical form."""
    from episafe.simulation.worlds import make_streams, world_of

    task = problem.task
    world = world_of(problem, make_streams(seed), task.move is not None)
    return [task.read(world.play(k, task.incumbent, None)) for k in range(num_episodes)]
