"""Small folders of each kind, by whatever episafe is imported: what tests/formats holds of every released format.

python make.py FOLDER    with the sources of the release on PYTHONPATH; then keep FOLDER as tests/formats/N

A folder is kept as it was written, for ever: a later version must be able to audit it. The checkpoints are left out.
"""

import sys
from pathlib import Path

import numpy as np

import episafe as es

CHAIN = es.make("streaming", seed=3)


def eager():
    """Leaves the incumbent within a few episodes."""
    return es.OPSE(CHAIN.task, es.Constants.tuned(CHAIN.task).replace(C_r=0.1, C_u=0.02))


def observing():
    """Deploys mixtures at once."""
    constants = es.Constants.proposing().replace(C_r=0.1)
    return es.OPSE(CHAIN.task, constants, certifier=es.certify.Observation(delta=0.1))


def episode(plan, rng):
    component, policy = plan.policy.draw(rng) if hasattr(plan.policy, "draw") else (None, plan.policy)
    states, actions = [CHAIN.task.initial_state], []
    for h in range(CHAIN.task.horizon):
        actions.append(int(policy.act(h, states[-1], rng)))
        states.append(int(rng.choice(CHAIN.P.shape[-1], p=CHAIN.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions, component=component if hasattr(plan.policy, "weights") else None)


def live(folder, agent, count):
    """Reports that are late, missing and abandoned; a halt, and its end."""
    rng = np.random.default_rng(0)
    session = es.open(folder, agent=agent)
    waiting = []
    for k in range(count):
        plan = session.plan()
        if k == count - 3:
            session.halt("the pump is broken")
        elif k == count - 2:
            session.resume_exploring("mended")
        if k != count // 2:
            waiting.append((plan, k))
        if k % 2:
            while waiting:
                plan, number = waiting.pop()
                session.learn(episode(plan, rng), plan_id=plan.id, episode_id=f"order {number}")
    if hasattr(session, "abandon"):
        session.abandon(session.plan().deployment)
    session.halt("the end")
    session.plan()
    session.close()


def main(folder):
    live(folder / "live", eager(), 8)
    live(folder / "observing", observing(), 6)
    es.run(CHAIN, eager(), 10, seed=1, folder=folder / "run")
    for path in folder.glob("*/checkpoint-*.npz"):
        path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
