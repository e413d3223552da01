"""Incumbent deployments with and without a log of the incumbent: `python benchmarks/warm_start.py --seeds 20`.

Each seed is a problem of its own. Its incumbent plays 500 episodes (tabular, streaming) or 1000 (linear), which are
written to a file and learned by `es.learn_log`; then the agent runs. The control runs without the log.
"""

import argparse
import csv
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import episafe as es
from episafe.kernels.simulation import running_sums, simulate

LOGGED = {"tabular": 500, "streaming": 500, "linear": 1000}


def incumbent_rows(cmdp: es.LinearCMDP, count: int, seed: int) -> list[dict[str, int]]:
    """`count` episodes of the incumbent, a row a step."""
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)]
    policy, kernel, H = running_sums(cmdp.task.safe_policy.table()), running_sums(cmdp.P), cmdp.task.horizon
    states, actions, rows = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64), []
    states[0] = cmdp.task.initial_state
    for k in range(count):
        simulate(policy, kernel, *streams, states, actions)
        for h in range(H):
            row = {"episode": k, "step": h, "state": int(states[h]), "action": int(actions[h])}
            rows.append(row | {"next_state": int(states[h + 1])})
    return rows


def write(rows: list[dict[str, int]], path: Path, cmdp: es.LinearCMDP) -> Any:
    """Rows as CSV or, by the name of the file, as Parquet or a Minari dataset: what `es.learn_log` takes."""
    if path.suffix == ".minari":
        return write_minari(rows, path, cmdp)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet as parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


def write_minari(rows: list[dict[str, int]], path: Path, cmdp: es.LinearCMDP) -> str:
    """The id of a dataset in the folder of `path`; signals are not recorded, since the task tells them."""
    import minari
    from gymnasium.spaces import Discrete
    from minari.data_collector import EpisodeBuffer

    os.environ["MINARI_DATASETS_PATH"] = str(path.parent)
    H, A, buffers = cmdp.task.horizon, cmdp.task.num_actions, []
    for k in range(0, len(rows), H):
        steps = rows[k : k + H]
        buffers.append(
            EpisodeBuffer(
                id=k // H,
                observations=[row["state"] for row in steps] + [steps[-1]["next_state"]],
                actions=[row["action"] for row in steps],
                rewards=[0.0] * H,
                terminations=[False] * H,
                truncations=[False] * (H - 1) + [True],
                infos={},
            )
        )
    name, spaces = f"{path.stem}-v0", {"observation_space": Discrete(cmdp.task.num_states), "action_space": Discrete(A)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fields that are left out
        minari.create_dataset_from_buffers(name, buffers, **spaces)
    return name


def deployments(
    env: str, seed: int, episodes: int, folder: Path, suffix: str, tuned: bool = False
) -> list[tuple[int, float]]:
    """Incumbent deployments and exact violation of `episodes`, without the log and with it."""
    cmdp, found = es.make(env, seed=seed), []
    log = write(incumbent_rows(cmdp, LOGGED[env], 10_000 + seed), folder / f"{env}-{seed}{suffix}", cmdp)
    for warm in (False, True):
        constants = es.Constants.tuned(cmdp.task) if tuned else es.Constants.paper(env)
        agent = es.OPSE(cmdp.task, constants, es.Doubling(0.3))
        if warm:
            assert es.learn_log(agent, log) == LOGGED[env]
        record = es.run(cmdp, agent, num_episodes=episodes, seed=seed)
        found.append((int(record.safe_deployments()[-1]), float(record.violation()[-1])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--suffix", choices=[".csv", ".parquet", ".minari"], default=".csv")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tuned", action="store_true", help="Constants.tuned in place of the published ones")
    given = parser.parse_args()
    print("| environment | logged | incumbent without the log | with it | seeds without any | violating seeds |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for env, logged in LOGGED.items():
            runs = np.array(
                [
                    deployments(env, seed, given.episodes, Path(name), given.suffix, given.tuned)
                    for seed in range(given.first_seed, given.first_seed + given.seeds)
                ]
            )  # (seeds, without and with, deployments and violation)
            cold, warm = runs[:, 0, 0], runs[:, 1, 0]
            violating = " and ".join(str(int((runs[:, i, 1] > 0).sum())) for i in (0, 1))
            print(
                f"| {env} | {logged} | {cold.mean():.0f} ({cold.min():.0f} to {cold.max():.0f}) | {warm.mean():.0f} "
                f"({warm.min():.0f} to {warm.max():.0f}) | {(warm == 0).sum()} of {len(warm)} | {violating} |"
            )


if __name__ == "__main__":
    main()
