"""What a checkpoint costs: python benchmarks/checkpoints.py. Milliseconds, the least of several repeats."""

import tempfile
import time
from collections.abc import Callable
from typing import Any

import episafe as es
from episafe.envs.large_linear import huge
from episafe.storage import checkpoint

REPEATS = 7


def least(call: Callable[[], Any]) -> float:
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1000 * min(found)


def opse(name: str, episodes: int, **options: Any) -> tuple[Any, es.OPSE]:
    cmdp = es.make(name, seed=0)
    agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task), **options)
    es.run(cmdp, agent, episodes)
    return cmdp, agent


def observed(episodes: int) -> tuple[Any, es.OPSE]:
    cmdp = es.make("tabular", seed=0)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation())
    es.run(cmdp, agent, episodes)
    return cmdp, agent


def by_functions(episodes: int) -> tuple[Any, es.OPSE]:
    cmdp = huge(10**9, support=400, dim=20)
    agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))
    es.run(cmdp, agent, episodes)
    return cmdp, agent


def main() -> None:
    cases = {
        "tabular, 10^5 episodes": opse("tabular", 100_000),
        "linear, 10^5 episodes": opse("linear", 100_000),
        "tabular, Observation, 10^4 episodes": observed(10_000),
        "functions, d = 20, 3000 episodes": by_functions(3_000),
    }
    print("| agent | bytes | state() | write | read | restore |\n| --- | --- | --- | --- | --- | --- |")
    for name, (_, agent) in cases.items():
        state = agent.state()
        with tempfile.TemporaryDirectory() as folder:
            size = checkpoint.write(folder, state, {}).stat().st_size
            times = (
                least(agent.state),
                least(lambda folder=folder, state=state: checkpoint.write(folder, state, {})),
                least(lambda folder=folder: checkpoint.read(folder)),
                least(lambda agent=agent, state=state: agent.restore(state)),
            )
        print(f"| {name} | {size:,} | " + " | ".join(f"{t:.1f} ms" for t in times) + " |")


if __name__ == "__main__":
    main()
