"""How far one episode walks through the house: files that it passes, and calls from one file into another.

    python benchmarks/walks.py            # simulate, deploy live, Gymnasium: files / calls across files
    python benchmarks/walks.py --files    # and which files
    python benchmarks/walks.py --calls    # and every such call: from where, to what, how often

Counted by the interpreter's own profiler, warm, so that compiled code counts as the call that enters it.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import gymnasium as gym
import numpy as np

import episafe as es

HOME = str(Path(es.__file__).parent)


def walked(action):
    """Files of the package that `action` passes, and calls between two of them."""
    files, calls = set(), Counter()

    def see(frame, event, _):
        if event != "call" or not frame.f_code.co_filename.startswith(HOME):
            return
        here, back = frame.f_code.co_filename, frame.f_back
        files.add(here)
        if back is not None and back.f_code.co_filename != here and frame.f_code.co_name != "<module>":
            calls[f"{named(back.f_code)} -> {named(frame.f_code)}"] += 1

    sys.setprofile(see)
    try:
        result = action()
    finally:
        sys.setprofile(None)
    said = f"{len(files)} files, {calls.total()} calls across files"
    if "--files" in sys.argv:
        said += f": {', '.join(sorted(file.removeprefix(f'{HOME}/') for file in files))}"
    if "--calls" in sys.argv:
        said += "".join(f"\n    {count:3} {call}" for call, count in calls.items()) + "\n"
    return result, said


def named(code):
    """A function by its file and name."""
    return f"{code.co_filename.removeprefix(f'{HOME}/')} {code.co_qualname}"


def simulate():
    """A whole `es.run` of one episode, an agent that has had one before."""
    cmdp = es.make("streaming", seed=0)
    agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))
    es.run(cmdp, agent, 2)
    return [walked(lambda: es.run(cmdp, agent, 1))[1]]


def deploy():
    """One plan and one report of an open journal."""
    cmdp = es.make("streaming", seed=0)
    with tempfile.TemporaryDirectory() as folder:
        agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))
        with es.open(folder, agent=agent) as session:
            rng, said = np.random.default_rng(0), []
            for _ in range(3):
                plan, planning = walked(session.plan)
                states, actions = [cmdp.task.initial_state], []
                for h in range(cmdp.task.horizon):
                    actions.append(plan.policy.act(h, states[-1], rng))
                    states.append(int(rng.choice(cmdp.P.shape[-1], p=cmdp.P[h, states[-1], actions[-1]])))
                episode = es.Episode(states, actions)
                _, learning = walked(lambda e=episode, p=plan: session.learn(e, plan_id=p.id))
                said = [f"plan {planning}", f"learn {learning}"]
    return said


class WithCost(gym.Wrapper):
    """Each step costs 0.1."""

    def step(self, action):
        state, reward, terminated, truncated, info = self.env.step(action)
        return int(state), float(reward), bool(terminated), bool(truncated), {**info, "cost": 0.1}


def environment():
    """One more episode of a Gymnasium environment, eight steps, in a run of two."""
    env = WithCost(gym.make("FrozenLake-v1", max_episode_steps=8))
    problem = es.from_gymnasium(
        env, features=es.features.OneHot(), horizon=8, cost_limit=4.0, safe_policy=lambda h, s: np.eye(4)[0], slack=1.0
    )
    agent = es.OPSE(problem.task, es.Constants.tuned(problem.task))
    es.run(problem, agent, 3)
    return [walked(lambda: es.run(problem, agent, 1))[1]]


if __name__ == "__main__":
    for name, walk in (("simulate", simulate), ("deploy live", deploy), ("Gymnasium, 8 steps", environment)):
        print(f"{name}: {'; '.join(walk())}")
