"""Worlds: what plays a policy and, where it can, knows exact values. One class a kind of problem.

The loop knows nothing of P, θ or an environment; a world knows nothing of agents. A world draws all its luck from
streams of its own, which a journal can put back where they were.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from episafe.checks import as_whole
from episafe.deployment.episode_tapes import ListedTape, RoundTape, Tape, TextTape
from episafe.kernels.bandit_decision import REASONS
from episafe.kernels.bandit_loop import BLOCK, BanditLaw, expected, luck, observe
from episafe.kernels.simulation import draw, follow, follow_chance, running_sums
from episafe.problems.cmdp import require_equal_steps
from episafe.problems.policy import TablePolicy
from episafe.problems.states import key
from episafe.runs.assumptions import require_same_problem, require_true_of_bandit, require_true_of_kernel
from episafe.types import HELD, Amount, Array, Episode, IntArray, amount

KEPT = 8  # running sums of so many policies: a mixture has few
Drawn = tuple[int | None, Any]  # which component of a mixture acts, None if the plan is none, and what acts
OTHER_REASON, HALTED = len(REASONS), len(REASONS) + 1  # how reasons are counted that are none of the engine's


class Played(NamedTuple):
    """One episode: what the agent is told, what was collected where nothing exact is known, and the atom of a bandit's
    plan that was played."""

    report: tuple[Any, ...]
    total: tuple[float, Any] | None = None
    atom: int = 0


class Traced(NamedTuple):
    """E episodes of a world that says what chance brought: `states` (E, H+1), `actions` (E, H), `chances` (E, H), the
    numbers of what it brought, `rewards` (E, H), and `utilities` (E, H), or (E, H, m) of several constraints."""

    states: IntArray
    actions: IntArray
    chances: IntArray
    rewards: Array
    utilities: Array


class World:
    """A world of episodes whose values nobody knows. What differs is said below.

    Attributes:
        problem: the problem itself.
        num_parallel: how many episodes of one plan it plays before the next.
        unknown: whether exact values cannot be known, so that totals are kept.
        changes: whether the optimum, and what may be done, change with the episode.
        tape: what its episodes are kept on.
        unit: what records call an episode.
    """

    num_parallel, unknown, changes, unit = 1, True, False, "episodes"
    tape: type[Tape] = TextTape

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def check(self, agent: Any, num_episodes: int) -> None:
        """Refuse an agent for another problem, or told what is false of this one."""
        if agent.task is not self.problem.task:
            require_same_problem(self.problem, agent)

    def begin(self, seed: int, num_runs: int) -> None:
        """Start the streams of a run: actions, transitions and the coins of mixtures have one each.

        A second run of one agent has streams of its own: the same draws again would be no new data.
        """
        root = np.random.SeedSequence(seed, spawn_key=(num_runs,) if num_runs else ())
        transitions, choices, coin = (np.random.default_rng(each) for each in root.spawn(3))
        self.luck: Any = SimpleNamespace(transitions=transitions, choices=choices, coin=coin)

    def end(self) -> None:
        """Leave nothing of the run's luck behind."""

    def round(self, k: int) -> int | None:
        """What an agent is told of the time, where that matters."""
        return None

    def draw(self, plan: Any) -> Drawn:
        """Toss the coin of a plan; only a mixture needs one."""
        policy = plan.policy
        component, acting = policy.draw(self.luck.coin) if hasattr(policy, "draw") else (0, policy)
        return (None if acting is policy else component), acting

    def values(self, plan: Any) -> tuple[float, Any]:
        """Exact V^r and V^u of a plan, (m,) of several constraints; NaN where they are not known."""
        return math.nan, math.nan

    def optimum(self, k: int = 0) -> float:
        """The exact optimum, of episode k where it changes; NaN where it is not known."""
        return math.nan

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One episode of each policy that was drawn, from episode k on."""
        raise NotImplementedError

    def streams(self) -> dict[str, Any]:
        """Where the luck is."""
        return {name: stream.bit_generator.state for name, stream in vars(self.luck).items()}

    def set_streams(self, states: dict[str, Any]) -> None:
        """Put it back."""
        for name, stream in vars(self.luck).items():
            stream.bit_generator.state = states[name]

    def bring_back(self, reports: Iterable[tuple[Any, ...]]) -> None:
        """Bring the world to where it was after these reports; most episodes leave nothing behind."""

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say beside the problem's origin."""
        return {}


class ListedWorld(World):
    """A problem with a known kernel: every value is exact."""

    unknown = False
    tape: type[Tape] = ListedTape

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        H = problem.task.horizon
        self._listed, self.kernel = problem, running_sums(problem.P)
        self._running: dict[int, tuple[Any, Array]] = {}
        self._states, self._actions = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64)
        self._uniform = np.empty((2, H))

    def check(self, agent: Any, num_episodes: int) -> None:
        """Refuse an agent for another problem, or told what the kernel shows to be false."""
        super().check(agent, num_episodes)
        if agent.task.time_homogeneous:
            require_equal_steps(self._listed.P)
        if getattr(agent, "level", "") == "theorem":
            require_true_of_kernel(self._listed, agent)

    def values(self, plan: Any) -> tuple[float, Any]:
        """Exact V^r and V^u of a plan."""
        return self.problem.evaluate(plan.policy)

    def optimum(self, k: int = 0) -> float:
        """The exact constrained optimum."""
        return float(self.problem.optimal_value())

    def settings(self) -> dict[str, str | int | float]:
        """What the incumbent earns and keeps, to compare with."""
        task = self.problem.task
        reward, utility = self.problem.evaluate(task.safe_policy)
        if task.num_constraints == 1:
            return {"incumbent_reward": reward, "incumbent_utility": utility}
        numbered = enumerate(utility.tolist(), 1)
        return {"incumbent_reward": reward, **{f"incumbent_utility_{c}": one for c, one in numbered}}

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One episode of each policy; the arrays of the last one are written to again."""
        states, actions, uniform = self._states, self._actions, self._uniform
        for component, policy in drawn:
            states[0] = self.problem.task.initial_state
            self.luck.choices.random(out=uniform[0])
            self.luck.transitions.random(out=uniform[1])
            follow(self._sums(policy.table()), self.kernel, uniform, states, actions)
            yield Played((Episode(states, actions, component=component),))

    def _sums(self, table: Array) -> Array:
        """Running sums of a table, made once."""
        if id(table) not in self._running:
            if len(self._running) == KEPT:
                self._running.pop(next(iter(self._running)))
            self._running[id(table)] = table, running_sums(table)  # the table is kept, so that no other has its id
        return self._running[id(table)][1]


class TracedWorld(ListedWorld):
    """An exogenous problem with a known law of chance, for agents that are told what chance brought."""

    tape: type[Tape] = TextTape

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One episode of each policy, with the rewards and utilities of its trace."""
        for component, policy in drawn:
            made = self.play_all([policy], np.zeros(1, dtype=np.int64))
            yield Played((self.episode(made, 0, component),))

    def episode(self, made: Traced, e: int, component: int | None) -> Episode:
        """Episode e of those that were played, with its trace."""
        states, actions, chances, rewards, utilities = (column[e] for column in made)
        trace = self.problem.task.initial_state, tuple(self.problem.law.move.values[i] for i in chances.tolist())
        return Episode(states, actions, rewards, utilities, component, trace)

    def play_all(self, policies: Sequence[Any], acting: IntArray) -> Traced:
        """One episode after another: in episode e it is policies[acting[e]] that acts."""
        law, H, E = self.problem.law, self.problem.task.horizon, len(acting)
        luck = self.luck.choices.random((E, H)), self.luck.transitions.random((E, H))
        states, actions, chances = (np.empty((E, length), dtype=np.int64) for length in (H + 1, H, H))
        states[:, 0] = self.problem.task.initial_state
        sums = np.array([self._sums(policy.table()) for policy in policies])
        follow_chance(sums, acting, law.running, law.move.next_states, luck, (states, actions, chances))
        rows = np.minimum(np.arange(H), len(law.move.next_states) - 1)  # one row for all steps, or one a step
        at = rows, states[:, :-1], actions, chances
        return Traced(states, actions, chances, law.move.rewards[at], law.move.utilities[at])


class UntoldWorld(ListedWorld):
    """A listed problem whose learner is told no signal: its episodes bring the rewards and utilities."""

    tape: type[Tape] = TextTape

    def __init__(self, problem: Any) -> None:
        super().__init__(problem.listed)
        self.problem = problem

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One episode of each policy, with its rewards and utilities."""
        told, steps = self.problem.listed.task, np.arange(self.problem.task.horizon)
        tables = [(component, TablePolicy(self.problem.table(policy))) for component, policy in drawn]
        for played in super().play(k, tables):
            (episode,) = played.report
            states, actions = episode.states.copy(), episode.actions.copy()
            at = steps, states[:-1], actions
            seen = told.reward[at], told.utility[at]
            yield Played((Episode(states.tolist(), actions, *seen, component=episode.component),))


class SampledWorld(World):
    """A problem given by functions."""

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One episode of each policy."""
        task, luck = self.problem.task, self.luck
        for component, policy in drawn:
            if self.problem.chance is not None:
                episode = task.replay(policy, self.problem.draw_trace(luck.transitions), luck.choices)
                total = float(episode.rewards.sum()), episode.utilities.sum(axis=0)
                yield Played((replace(episode, component=component),), total)
                continue
            states, actions, collected = [task.start], [], np.zeros(1 + task.num_constraints)
            for h in range(task.horizon):
                state = states[-1]
                action = int(draw(running_sums(policy.probabilities(h, state)), luck.choices.random()))
                collected += np.append(task.reward_at(h, state)[action], task.utility_at(h, state)[action])
                actions.append(action)
                states.append(task.as_state(self.problem.sample(h, state, action, luck.transitions)))
            yield Played((Episode(states, actions, component=component),), (collected[0], collected[1:]))


class GymWorld(World):
    """A live environment, or several side by side."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self.num_parallel = problem.num_envs

    def begin(self, seed: int, num_runs: int) -> None:
        """Start the streams of a run; the environment has a seed of its own from them."""
        super().begin(seed, num_runs)
        self.problem.seed(int(self.luck.transitions.integers(2**31)))

    def end(self) -> None:
        """Whatever is played next has other luck."""
        self.problem.forget_seed()

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One episode of each policy, side by side where the environment has several."""
        episodes = self.problem.episodes([policy for _, policy in drawn], self.luck.choices)
        for (component, _), episode in zip(drawn, episodes, strict=True):
            total = episode.rewards.sum(), episode.utilities.sum(axis=0)
            yield Played((episode if component is None else replace(episode, component=component),), total)

    def bring_back(self, reports: Iterable[tuple[Any, ...]]) -> None:
        """Take the actions that were taken; the environment must answer as it did."""
        episodes = [episode for (episode,) in reports]
        for first in range(0, len(episodes), self.num_parallel):
            self._play_again(episodes[first : first + self.num_parallel])

    def _play_again(self, episodes: list[Episode]) -> None:
        answered = self.problem.replay([list(episode.actions) for episode in episodes])
        seen = [[key(state) for state in episode.states] for episode in episodes]
        if [[key(state) for state in states] for states in answered] != seen:
            raise ValueError(
                "the environment answers otherwise than it did: a run can be resumed only if its randomness comes from "
                "the seed of reset(seed=…)"
            )


class BanditWorld(World):
    """A linear bandit: the luck of a round depends on the seed and the round alone.

    A later run of one agent that begins with a round before where it is has luck of its own, as in other worlds.

    Args:
        problem: the bandit.
        first_round: the round of the run's first episode.
    """

    unknown, unit = False, "rounds"
    tape: type[Tape] = RoundTape

    def __init__(self, problem: Any, first_round: int = 0) -> None:
        super().__init__(problem)
        self.first_round, self.changes = as_whole("first_round", first_round, 0), problem.task.changes
        theta = np.vstack([problem.theta_r, problem.theta_u])
        self.law = BanditLaw(theta, problem.task.noise, problem.clicks)
        self.reasons = np.zeros(HALTED + 1, dtype=np.int64)  # how often each was given
        self._goes_on = self.first_round > 0
        self._block: tuple[int, Any] = (-1, None)
        self._running: tuple[Any, Array] = (None, np.zeros(0))

    def check(self, agent: Any, num_episodes: int) -> None:
        """Refuse an agent for another problem, or told what is false of this one."""
        rounds = range(self.first_round, self.first_round + num_episodes)
        require_true_of_bandit(self.problem, agent, rounds)
        self._goes_on = 0 < self.first_round >= getattr(agent, "num_learned", 0)

    def begin(self, seed: int, num_runs: int) -> None:
        """The seed is all there is, or what is made of it for a later run."""
        anew = num_runs > 0 and not self._goes_on
        self.seed = int(np.random.SeedSequence(seed, spawn_key=(num_runs,)).generate_state(1)[0]) if anew else seed

    def round(self, k: int) -> int | None:
        """The round, where the arms change with it."""
        return self.first_round + k if self.changes else None

    def draw(self, plan: Any) -> Drawn:
        """The plan itself is what is drawn from, in each round."""
        self.reasons[_reason_number(plan)] += 1
        return None, plan

    def values(self, plan: Any) -> tuple[float, Amount]:
        """Exact E[θ_rᵀa] and E[θ_uᵀa] of a plan."""
        theta = self.law.theta
        reward, *utilities = (float(expected(theta, g, plan.atoms, plan.probabilities)) for g in range(len(theta)))
        return reward, amount(utilities)

    def optimum(self, k: int = 0) -> float:
        """The exact optimum of a round."""
        if self.changes:
            self.problem.check_round(self.first_round + k)
            return float(self.problem.optimal_value(self.first_round + k))
        return float(self.problem.optimal_value())

    def play(self, k: int, drawn: Sequence[Drawn]) -> Iterator[Played]:
        """One round of each plan."""
        for i, (_, plan) in enumerate(drawn):
            block, position = divmod(self.first_round + k + i, BLOCK)
            choices, noise = self.chance(block)
            if self._running[0] is not plan:
                self._running = plan, running_sums(plan.probabilities)
            atom = draw(self._running[1], choices[position])
            signals = np.empty((1, len(self.law.theta)))
            observe(self.law, plan.atoms, atom, noise, position, signals)
            yield Played((plan.atoms[atom], float(signals[0, 0]), amount(signals[0, 1:])), atom=int(atom))

    def chance(self, block: int) -> Any:
        """What chance brings in the rounds of a block."""
        if self._block[0] != block:
            self._block = block, luck(self.seed, block, len(self.law.theta))
        return self._block[1]

    def streams(self) -> dict[str, Any]:
        """The seed, which a later run of one agent has of its own, and the count of reasons."""
        return {"reasons": self.reasons.tolist(), "seed": self.seed}

    def set_streams(self, states: dict[str, Any]) -> None:
        """Put them back; runs of earlier versions have not written the seed."""
        self.reasons[:], self.seed, self._block = states["reasons"], states.get("seed", self.seed), (-1, None)

    def settings(self) -> dict[str, str | int | float]:
        """That it is a bandit, how often a plan was not the outcome of a search, and why."""
        names = (*REASONS, "planning failed", "halted")
        said = [f"{count} x {names[i]}" for i, count in enumerate(self.reasons.tolist()) if count and names[i]]
        return {"problem": "bandit", "reasons": "; ".join(said) or "never"}


def _reason_number(plan: Any) -> int:
    if plan.id == HELD:
        return HALTED
    return REASONS.index(plan.reason) if plan.reason in REASONS else OTHER_REASON


def world_of(problem: Any, first_round: int = 0, traced: bool = False) -> World:
    """The world of a problem, by what it offers: a kernel, parameters, an environment, or a function that samples.

    `traced`: its episodes must say what chance brought.
    """
    if traced and not problem.task.is_exogenous:
        raise ValueError("the agent learns from what chance brought, and the problem is not exogenous: give it move=…")
    if hasattr(problem, "listed"):
        return UntoldWorld(problem)
    if hasattr(problem, "P"):
        return TracedWorld(problem) if traced else ListedWorld(problem)
    if hasattr(problem, "theta_r"):
        return BanditWorld(problem, first_round)
    if hasattr(problem, "num_envs"):
        return GymWorld(problem)
    if hasattr(problem, "sample"):
        return SampledWorld(problem)
    raise TypeError(
        f"run needs a problem such as es.LinearCMDP, es.SampledCMDP, es.from_gymnasium(…) or a LinearBandit, got "
        f"{type(problem).__name__}"
    )
