"""What a live step costs beside the environment itself: planning, acting, reading, learning and certifying.

Our run, and the bare environment with the same resets and actions, in turn in one process; processor time, the shortest
of some. Without Gymnasium there is nothing to measure.
"""

import time
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

from episafe.agents.opse import OPSE
from episafe.certify.observation import Observation
from episafe.gym.adapter import GymCMDP, from_gymnasium
from episafe.learning.constants import Constants
from episafe.learning.planner import Doubling
from episafe.problems.features import Cells, OneHot
from episafe.problems.sampled_problem import SampledTask
from episafe.runs.run import run

EARLY = Constants(0.1, 0.1, 0.1, 0.1, kappa=0.01, lam_max=300, num_halvings=20)  # so small that it soon explores
SETTLED = 0.2  # seconds after which threads of linear algebra, which building a problem woke, no longer wait busily


def live_speeds(quick: bool) -> list[dict[str, Any]]:
    """One row an environment and agent, as plain values; none where Gymnasium is not installed."""
    if find_spec("gymnasium") is None:
        return []
    return [_speed(env, agent, quick) for env in PROBLEMS for agent in AGENTS]


def _speed(env: str, agent: str, quick: bool) -> dict[str, Any]:
    """Microseconds a step of the environment: its own, bare, and ours beside it."""
    num_episodes, repeats = (60, 2) if quick else (500, 10)

    def ours() -> float:
        problem = PROBLEMS[env]()
        learner = AGENTS[agent](problem.task)
        time.sleep(SETTLED)
        start = time.process_time()
        run(problem, learner, num_episodes)
        return time.process_time() - start

    def bare() -> float:
        played = PROBLEMS[env]().env
        time.sleep(SETTLED)
        start = time.process_time()
        for one in done:
            played.reset(**one) if type(one) is dict else played.step(one)
        return time.process_time() - start

    problem, done = PROBLEMS[env](), list[Any]()  # what is done with it: the options of resets, and actions
    inside = problem.env

    def reset(**options: Any) -> Any:
        done.append(options)
        return inside.reset(**options)

    def step(action: Any) -> Any:
        done.append(action)
        return inside.step(action)

    problem.env = SimpleNamespace(reset=reset, step=step)
    record = run(problem, AGENTS[agent](problem.task), num_episodes)  # compiles, or loads what is compiled
    num_steps = sum(type(one) is not dict for one in done)
    least, whole = (np.array([(bare(), ours()) for _ in range(repeats)]).min(axis=0) / num_steps * 1e6).tolist()
    counts = {"num_steps": num_steps, "plans": int(record.plan_ids[-1]) + 1}
    return {"env": env, "agent": agent, **counts, "bare": least, "ours": whole - least}


def _listed() -> Any:
    """The battery, its states by number."""
    from episafe.envs.gymnasium import build

    env = build("battery")
    task = env.cmdp.task
    told = {name: getattr(task, name) for name in ("horizon", "threshold", "slack", "safe_policy")}
    return from_gymnasium(env, features=OneHot(), **told)


def _binned() -> Any:
    """CartPole from a random start, in cells; its utility is to be upright."""
    import gymnasium

    class Upright(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            state, reward, terminated, truncated, info = self.env.step(action)
            return state, reward, terminated, truncated, {**info, "utility": float(abs(state[2]) < 0.1)}

    cells, rows = Cells([-2.4, -2.0, -0.2, -2.0], [2.4, 2.0, 0.2, 2.0], bins=4), np.eye(2)
    return from_gymnasium(
        Upright(gymnasium.make("CartPole-v1", max_episode_steps=50)),
        features=OneHot(cells, cells.size),
        horizon=50,
        threshold=30.0,
        slack=5.0,
        safe_policy=lambda h, state: rows[int(state[2] + 0.5 * state[3] > 0)],
        random_start=True,
    )


PROBLEMS: dict[str, Callable[[], GymCMDP]] = {"battery, listed": _listed, "CartPole, binned": _binned}
AGENTS: dict[str, Callable[[SampledTask], OPSE]] = {
    "opse doubling:0.3": lambda task: OPSE(task, EARLY, Doubling(0.3)),
    "opse observation": lambda task: OPSE(task, Constants.proposing(), certifier=Observation()),
}
