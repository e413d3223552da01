"""`episafe check`: plays a live problem under its incumbent and says what is wrong and how to mend it."""

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import InvalidProblem
from episafe.gym.adapter import LiveCMDP
from episafe.gym.autoreset import sub_environments
from episafe.gym.signal_limits import raw_total
from episafe.logs.logged_episode import steps_of
from episafe.runs.forecast import WORST, doubt, forecast
from episafe.stats import mean_interval
from episafe.tools.named_object import errors_inside, named_problem
from episafe.types import Array, Episode

DELTA = 0.01  # of the interval for the incumbent's utility
OF_AGENT = 0.05  # δ of es.OPSE(task), of which the forecast is
FAR = 5.0  # standard errors beyond which two means are said to differ; a rule of thumb
MUCH = 2.0  # times as many trials are worth a word of advice
FEW = 0.05  # share of trials below which learning is slow; a rule of thumb
SAME = 1e-6  # what is told and what is seen may differ by this, in [0, 1]
TOLD_EPISODES = 50  # of the incumbent, to compare what is told with
CONFIRM = {"early-end": "early ends"}  # what the user may confirm, and the finding that asks for it

# (h, state, action), h as the function counts it: what a function tells, and each value seen
Pairs = dict[tuple[int, Any, int], tuple[float, list[float]]]


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what, a verdict, what was found, and what to do about it.

    The verdict is "ok", "warning", "error", or "confirm" where only the user can know.
    """

    what: str
    verdict: str
    found: str


def load(name: str) -> LiveCMDP:
    """The problem that `module:name` stands for: a problem of `from_gymnasium`, or a function that makes one."""
    found = named_problem(name)
    if not isinstance(found, LiveCMDP):
        raise ValueError(
            f"{name} is a {type(found).__name__}, which was checked when it was made: `episafe preflight {name}` says "
            "what to expect, episafe.testing.check_environment(problem) makes all checks of it; `episafe check` plays "
            "what es.from_gymnasium returns"
        )
    return found


def check(
    problem: LiveCMDP,
    num_episodes: int = 200,
    seed: int = 0,
    confirmed: Collection[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> list[Finding]:
    """Gymnasium's own checker, then episodes of the incumbent: ranges, ends, repeats, features, its utility.

    `confirmed` names what the user knows to be meant: "early-end", that to end early is as safe as it looks.
    `on_progress` is called with the number of episodes played.
    """
    for name in confirmed:
        if name not in CONFIRM:
            raise ValueError(f"there is nothing to confirm of the name {name!r}: give {', '.join(CONFIRM)}")
    with problem.one_run():
        try:
            return _findings(problem, num_episodes, seed, confirmed, on_progress)
        finally:
            problem.forget_seed()


def _findings(
    problem: LiveCMDP,
    num_episodes: int,
    seed: int,
    confirmed: Collection[str],
    on_progress: Callable[[int], None] | None,
) -> list[Finding]:
    findings = [_gymnasium(problem)]
    problem.seed(seed)
    rng = np.random.default_rng(seed)
    try:
        with errors_inside("the environment"):
            episodes: list[Episode] = []
            for episode in problem.episodes([problem.task.safe_policy] * num_episodes, rng):
                episodes.append(episode)
                if on_progress is not None:
                    on_progress(len(episodes))
    except ValueError as error:
        return [*findings, Finding("episodes", "error", str(error))]
    findings.append(Finding("episodes", "ok", f"{num_episodes} of the incumbent, {steps_of(problem.task)} steps each"))
    several = list(_by_constraint(problem, episodes))
    findings += _named(problem, [_ends(one, own, "early-end" in confirmed) for one, own in several])
    findings += [look(*several[0]) for look in (_start, _features, _repeats)]
    for look in (_incumbent, _trials, partial(_forecast, delta=OF_AGENT / len(several))):
        findings += _named(problem, [look(one, own) for one, own in several])
    findings += [_move(problem, episodes)] if problem.task.is_exogenous else []
    findings += [_steps_alike(*several[0])] if problem.task.time_homogeneous else []
    if problem.is_vector:
        findings += [_copies(problem, episodes), *_named(problem, [_alike(one, own) for one, own in several])]
    told = problem.told if len(several) == 1 else ()
    return findings + [_told(problem, name, rng) for name in told]


def _by_constraint(problem: LiveCMDP, episodes: list[Episode]) -> Iterator[tuple[LiveCMDP, list[Episode]]]:
    """The problem and its episodes as if each constraint were the only one; as they are where there is one."""
    if problem.task.num_constraints == 1:
        yield problem, episodes
        return
    for c in range(problem.task.num_constraints):
        yield problem.of_constraint(c), [replace(episode, utilities=episode.utilities[:, c]) for episode in episodes]


def _named(problem: LiveCMDP, findings: list[Finding]) -> list[Finding]:
    """Findings of one kind, each with the name of its constraint where there are several."""
    if len(findings) == 1:
        return findings
    names = problem.task.constraint_names
    return [replace(one, what=f"{one.what}, {name}") for one, name in zip(findings, names, strict=True)]


def _gymnasium(problem: LiveCMDP) -> Finding:
    """What `gymnasium.utils.env_checker.check_env` says, of the first environment in a vector one."""
    from gymnasium.utils.env_checker import check_env

    if problem.is_vector and not sub_environments(problem.env):
        found = "not run, for the environments are out of sight: check one of them by itself"
        return Finding("Gymnasium's checker", "warning", found)
    env = (*sub_environments(problem.env), problem.env)[0]
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:  # its faults are of many kinds, and all are the environment's
            return Finding("Gymnasium's checker", "error", f"{type(error).__name__}: {error}")
    if noted:
        return Finding("Gymnasium's checker", "warning", str(noted[0].message).replace("\x1b[33mWARN: ", "")[:200])
    return Finding("Gymnasium's checker", "ok", "passed")


def _ends(problem: LiveCMDP, episodes: list[Episode], confirmed: bool) -> Finding:
    """Early ends: where what comes after is not the worst, they look safe, and only the user knows whether they are."""
    share = float(np.mean([episode.states[-1] is problem.ended for episode in episodes]))
    found, after = f"{share:.0%} of the incumbent's episodes", problem.after_the_end[1]
    if after <= 0:
        return Finding("early ends", "ok", f"{found}; zero utility after, so they do not look safe")
    if share == 0:
        return Finding("early ends", "ok", f"{found}; if other actions end an episode, they cost nothing after it")
    if confirmed:
        return Finding("early ends", "ok", f"{found} cost nothing after; confirmed to be as safe as that")
    return Finding(
        "early ends",
        "confirm",
        f"{found} cost nothing after: ending early looks safe. If it is, say so with --confirm early-end; if not, "
        "charge the rest of the episode in the cost of the last step",
    )


def _start(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """Whether a random start looks alike in both halves: each coordinate's means, within five standard errors."""
    if not problem.task.random_start:
        return Finding("start", "ok", "fixed")
    starts = np.array([_coordinates(episode.states[1]) for episode in episodes])
    first, second = np.array_split(starts, 2)
    error = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second)) + 1e-12
    gap = np.abs(first.mean(axis=0) - second.mean(axis=0)) / error
    if (gap > FAR).any():
        found = f"coordinate {int(gap.argmax())} moved by {gap.max():.0f} standard errors between two halves"
        return Finding("start", "error", f"{found}: the start must be drawn alike each time; drop what drifts")
    return Finding("start", "ok", "random, no drift seen")


def _features(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """The norms of the features at visited states: above 1 they are refused before this, and 1/norm is below B."""
    task = problem.task
    if task.one_hot:
        return Finding("features", "ok", "one-hot")
    states = (state for episode in episodes for state in episode.states if task.key(state) not in task.outside)
    norms = np.concatenate([np.linalg.norm(task.features(state), axis=1) for state in states])
    found = f"dimension {task.dim}, norms {norms.min():.3g} to {norms.max():.3g}"
    if norms.max() > 1 + TOLERANCE:
        remedy = f"divide all features by {norms.max():.6g}, and multiply norm_bound by it"
        return Finding("features", "error", f"{found}: {remedy}")
    if norms.min() * task.norm_bound < 1 - TOLERANCE:
        least = f"norm_bound >= {1 / norms.min():.6g}" if norms.min() > 0 else "that none is 0"
        told = f"the task states {task.norm_bound:.3g}: give a true norm_bound"
        return Finding("features", "warning", f"{found}: a kernel that is linear in them needs {least}, and {told}")
    return Finding("features", "ok", f"{found}, norm_bound {task.norm_bound:.3g}")


def _repeats(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """Whether reward and utility repeat at the same step, state and action."""
    seen: dict[Any, list[tuple[float, float]]] = {}
    for h, name, action, values in _steps(problem, episodes):
        seen.setdefault((h, name, action), []).append(values)
    repeated = [np.array(values) for values in seen.values() if len(values) > 1]
    if not repeated:
        return Finding("repeats", "ok", "no state was seen twice, so nothing can be said")
    spread = np.max([np.ptp(values, axis=0) for values in repeated], axis=0)
    if (spread > 1e-9).any():
        found = f"at the same state and action they differ by up to {spread[0]:.3g} and {spread[1]:.3g}"
        return Finding("reward and utility", "ok", f"{found}: noise; what is kept is the expected utility")
    return Finding("reward and utility", "ok", f"no noise at {len(repeated)} states and actions")


def _steps(problem: LiveCMDP, episodes: list[Episode]) -> Iterator[tuple[int, Any, int, tuple[float, float]]]:
    """Step, key of the state, action, and what it gave: reward and utility."""
    for episode in episodes:
        for h, (state, action) in enumerate(zip(episode.states, episode.actions, strict=False)):
            yield h, problem.task.key(state), action, (float(episode.rewards[h]), float(episode.utilities[h]))


def _steps_alike(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """Whether reward and utility without noise are the same at every step, where the problem is said to be so.

    Steps at which a state and an action were seen once say nothing: it might be noise.
    """
    seen: dict[Any, dict[int, list[tuple[float, float]]]] = {}
    for h, name, action, (reward, utility) in _steps(problem, episodes):
        if name not in problem.task.outside:
            seen.setdefault((name, action), {}).setdefault(h, []).append((round(reward, 9), round(utility, 9)))
    for (state, action), by_step in seen.items():
        often = [set(values) for values in by_step.values() if len(values) > 1]
        if all(len(values) == 1 for values in often) and len(set().union(*often)) > 1:
            return Finding(
                "time_homogeneous", "error",
                f"at state {state!r} and action {action} reward and utility differ from step to step, and never within "
                "one: leave out time_homogeneous=True, or let the observation tell the step",
            )  # fmt: skip
    return Finding("time_homogeneous", "ok", f"no sign of the step in reward and utility at {len(seen)} pairs")


def _move(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """Whether each episode is what `move` makes of its trace, at every step that shows what chance brought."""
    task = problem.task
    for number, episode in enumerate(episodes):
        if fault := task.replay_fault(episode):
            found = f"episode {number} is not what move makes of its trace: {fault}"
            return Finding("move", "error", f'{found}; mend move=, or what info["chance"] says')
    unseen = sum(any(w is None and state is not problem.ended for w, state in _brought(task, e)) for e in episodes)
    if unseen:
        found = f'in {unseen} of {len(episodes)} episodes some step has no info["chance"]'
        return Finding("move", "warning", f"{found}: from there on they count as utility 0; report it at every step")
    found = f"{len(episodes)} episodes are what move makes of their traces"
    return Finding("move", "ok", f"{found}; where the incumbent does not go nothing was compared")


def _brought(task: Any, episode: Episode) -> Iterator[tuple[Any, Any]]:
    """What chance brought at each step, and the state there."""
    return zip(task.read_trace(episode.trace), episode.states, strict=False)


def _incumbent(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """The incumbent's utility with a 99 % interval, against threshold and slack."""
    H, totals = steps_of(problem.task), _totals(episodes)  # the dummy step of a random start has no utility
    mean, (low, high) = float(totals.mean()), (H * end for end in mean_interval(totals / H, DELTA))
    b, slack = problem.task.threshold, problem.task.slack
    told = "slack not known" if slack is None else f"slack {slack:.3g}"
    found = (
        f"utility {mean:.4g}, {low:.4g} to {high:.4g} (99 %, betting interval, not normal), in [0, 1] a step; "
        f"threshold {b:.4g}, {told}"
    )
    if b <= 0:
        lost = f"no policy can break the limit {problem.origin['limit']:g} in {H} steps"
        return Finding("incumbent", "warning", f"{found}: {lost}; is it a total of an episode, in the signal's units?")
    if high < b:
        return Finding("incumbent", "error", f"{found}: it is not safe; give a safer one or relax the limit")
    if asked := doubt(mean, b):
        return Finding("incumbent", "warning", f"{found}; {asked}")
    if slack is None:
        return Finding("incumbent", "ok", f"{found}; es.measure_slack gives a proved one")
    if high < b + slack - TOLERANCE:  # the told slack is rounded too
        return Finding("incumbent", "error", f"{found}: the slack is not there; give at most {max(low - b, 0):.3g}")
    if low < b + slack - TOLERANCE:
        shown = f"give the slack these episodes show, {low - b:.3g}" if low > b else "relax the limit"
        return Finding("incumbent", "warning", f"{found}: not certain; play more with --episodes, or {shown}")
    return Finding("incumbent", "ok", found)


def _trials(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """How often `Observation` may try a candidate of which nothing is known: ξ/(b + ξ − x₀), x₀ the least total."""
    b, slack, least = problem.task.threshold, problem.task.slack, problem.task.least_total
    if slack is None:
        return Finding("trials", "ok", "how often something new may be tried follows from the slack, not known yet")
    if b <= 0:
        return Finding("trials", "ok", "a policy without any utility is safe: anything may be tried at once")
    share = slack / (b + slack - least)
    above = "threshold + slack" if not least else f"threshold + slack - {least:.4g}, the least total"
    found = f"Observation tries something new in {share:.1%} of its first episodes, slack/({above})"
    advice = "" if least else _worst_total_advice(problem, episodes, share)
    if share < FEW:
        remedy = advice or "give a safer incumbent, or relax the limit"
        return Finding("trials", "warning", f"{found}: it will be slow; {remedy}")
    return Finding("trials", "ok", f"{found}; {advice}" if advice else found)


def _forecast(problem: LiveCMDP, episodes: list[Episode], delta: float) -> Finding:
    """About how long it takes, from the incumbent's episodes; a guide."""
    try:
        found = forecast(problem.task, _totals(episodes), delta)
    except ValueError as error:
        return Finding("forecast", "ok", f"none: {error}")
    kept = [change for change in found.changes if not change.what.startswith(WORST)]  # "trials" has advised it
    return Finding("forecast", "ok", f"with es.OPSE(task) {replace(found, changes=tuple(kept))}")


def _worst_total_advice(problem: LiveCMDP, episodes: list[Episode], share: float) -> str:
    """What to state of the worst total, and what the share of trials would be then; "" where that helps little.

    As an example it takes the worst that the incumbent's episodes show or, where these are not beyond the limit, what
    one step of the worst would make of the best episode.
    """
    scale, H = problem.scale, steps_of(problem.task)
    b, slack, totals = problem.task.threshold, problem.task.slack or 0.0, _totals(episodes)
    least = next((worst for worst in (float(totals.min()), float(totals.max()) - 1.0) if 0 < worst < b), 0.0)
    then = slack / (b + slack - least)
    if then < MUCH * share:
        return ""
    name, side = (WORST[1], "more") if scale.name == "cost" else (WORST[0], "less")
    raw = raw_total(least, scale, H)
    return (
        f"if you know that no episode can have {side} than some total {scale.name}, whatever is done, state it: with "
        f"{name}={raw:.4g}, a number of these episodes and no advice, it would be {then:.1%}; it must be sure: an "
        "episode beyond it halts and voids certificates"
    )


def _copies(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """Whether the sub-environments draw their own luck: if not, N episodes are one that is counted N times."""
    N = problem.num_envs
    seen = [str([problem.task.key(state) for state in episode.states]) for episode in episodes]
    batches = [seen[first : first + N] for first in range(0, len(seen) - N + 1, N)]
    if N > 1 and len(set(seen)) > 1 and all(len(set(batch)) == 1 for batch in batches):
        found = "at every moment all of them are in the same state, though episodes differ"
        return Finding("sub-environments", "error", f"{found}: give each a seed of its own, as reset(seed=…) must")
    return Finding("sub-environments", "ok", f"{N}, no copies of one another seen")


def _alike(problem: LiveCMDP, episodes: list[Episode]) -> Finding:
    """Whether the sub-environments have the same mean reward and utility, within five standard errors."""
    N, gaps = problem.num_envs, np.zeros((problem.num_envs, 2))
    totals = np.array([[np.sum(episode.rewards), np.sum(episode.utilities)] for episode in episodes])
    for i in range(N):
        own, others = totals[i::N], np.delete(totals, np.s_[i::N], axis=0)
        if min(len(own), len(others)) > 1:
            error = np.sqrt(own.var(axis=0) / len(own) + others.var(axis=0) / len(others)) + 1e-9
            gaps[i] = np.abs(own.mean(axis=0) - others.mean(axis=0)) / error
    if gaps.max() > FAR:
        i, g = divmod(int(gaps.argmax()), 2)
        found = f"the {('reward', 'utility')[g]} of number {i} is {gaps.max():.3g} standard errors from the others'"
        return Finding("sub-environments alike", "error", f"{found}: make all of them the same system")
    return Finding("sub-environments alike", "ok", "no difference seen")


def _told(problem: LiveCMDP, name: str, rng: np.random.Generator) -> Finding:
    """Whether a function given as reward= or utility= says what the environment says."""
    what, mend = f"{name}= given", f"correct the function {name}=, or leave it out and let it be learned"
    try:
        pairs = _told_and_seen(problem, name, rng)
    except InvalidProblem as error:
        if name == "utility" and 'has no "' in str(error):
            return Finding(what, "ok", "the environment reports no signal to compare it with")
        return Finding(what, "error", f"{error}; or leave out {name}=")
    noisy = max(np.ptp(seen) for _, seen in pairs.values()) > SAME
    for (h, state, action), (told, seen) in pairs.items():
        low, high = min(seen) - SAME, max(seen) + SAME
        if noisy:  # what is told must be the mean
            low, high = mean_interval(np.array(seen), DELTA / len(pairs))
        if not low <= told <= high:
            place = f"at step {h}, state {state}, action {action} it is {told:.4g}"
            mean = f"the environment's mean lies in [{low:.4g}, {high:.4g}] (99 %)"
            says = mean if noisy else f"{seen[0]:.4g} is seen"
            return Finding(what, "error", f"{place}, and {says}, both in [0, 1]: {mend}")
    kind = "no contradiction, the environment is noisy," if noisy else "as the environment says,"
    return Finding(what, "ok", f"{kind} at {len(pairs)} steps, states and actions")


def _told_and_seen(problem: LiveCMDP, name: str, rng: np.random.Generator) -> Pairs:
    """Play the incumbent, read the signal `name` that a function tells, and put the two side by side."""
    task, g = problem.task, ("reward", "utility").index(name)
    function, batches = (task.reward_at, task.utility_at)[g], -(-TOLD_EPISODES // problem.num_envs)
    found: Pairs = {}
    policies = [task.safe_policy] * (batches * problem.num_envs)
    for states, actions, signals, _ in problem.reporting(name).play(policies, rng):
        for h, (action, seen) in enumerate(zip(actions, signals[g], strict=True)):
            state = states[h]
            if task.key(state) not in task.outside:
                told = float(function(h, state)[action])
                place = (h - int(task.random_start), str(state), action)
                found.setdefault(place, (told, []))[1].append(seen)
    return found


def _totals(episodes: list[Episode]) -> Array:
    """The total utility of each."""
    return np.array([np.sum(episode.utilities) for episode in episodes])


def _coordinates(state: Any) -> Array:
    """The numbers of a state in a row, also of one that is a tuple of several."""
    parts = state if isinstance(state, tuple) else (state,)
    deep = [_coordinates(part) if isinstance(part, tuple) else np.ravel(np.asarray(part, float)) for part in parts]
    return np.concatenate(deep)
