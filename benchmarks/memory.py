"""Memory against the number of states: one service with queues of any length, each state told apart.

Prints, for S states and K episodes, how many (step, state) pairs were visited and the peak of what Python allocated.
"""

import tracemalloc

import episafe as es
from episafe.envs.cloud import Cloud
from episafe.envs.gymnasium import RulesEnv


def measure(longest, num_episodes):
    """S, visited (step, state) pairs and the peak in MiB."""
    service = Cloud(
        caps=(30, 40, 50, 80), arrivals=(20.0, 60.0), served=40.0, longest=longest, patience=80, loads=20, calm=0.5,
        time_homogeneous=False,
    )  # fmt: skip
    problem = es.from_gymnasium(
        RulesEnv(service),
        features=es.features.OneHot(),
        horizon=service.horizon,
        threshold=0.9 * service.horizon,
        slack=2.9,
        safe_policy=lambda h, state: service.incumbent(h, tuple(state)),
    )
    tracemalloc.start()
    constants = es.Constants.proposing().replace(C_r=0.1, C_theta=0.03)
    agent = es.OPSE(problem.task, constants, certifier=es.certify.Observation())
    es.run(problem, agent, num_episodes, seed=0)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return (longest + 1) * 20, int(agent.planner.regression.support.size.sum()), peak


if __name__ == "__main__":
    measure(499, 70)  # compiles
    for num_episodes in (100, 200, 400, 800):
        for longest in (499, 49_999, 4_999_999):
            states, visited, peak = measure(longest, num_episodes)
            print(
                f"S {states:>11,}  episodes {num_episodes:>4}  visited {visited:>7,}  peak {peak:6.1f} MiB", flush=True
            )
