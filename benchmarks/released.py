"""episafe next to the paper's released code: episodes per second of both, in turn, in one run on one core.

Seconds are those that the core spent on the process: with nothing else running they are those of the clock, and other
work on the machine disturbs them less. Name environments to measure these only.

The released code is not part of episafe. Clone it (matsuolab/Episode-Wise-Safe-Linear-CMDP), make an environment with
what it needs (jax, chex, mpax, tqdm, matplotlib), and say where both are:

    taskset -c 1 python benchmarks/released.py CLONE CLONE/.venv/bin/python [tabular streaming linear]
"""

import json
import statistics
import subprocess
import sys
import time

import episafe as es

NAMES = {"tabular": "random", "streaming": "streaming", "linear": "linear"}  # ours: theirs
EPISODES = 10_000
THEIR_EPISODES = {"tabular": 10_000, "streaming": 10_000, "linear": 3_000}  # at a steady pace
ROUNDS = 3

# Runs the notebook's own cells: the problem, the constants, and its loop, once to compile and once to time.
THEIRS = """
import json, sys, time, types
sys.modules["ray"] = types.SimpleNamespace(shutdown=lambda: None, init=lambda **settings: None)
name, episodes = sys.argv[1], int(sys.argv[2])
cells = json.load(open("Experiment.ipynb"))["cells"]
scope = {"CMDP_type": name, "debug": False, "NUM_SEEDS": 1}
for i in (1, 2, 4):
    exec("".join(cells[i]["source"]).replace("tqdm(range", "(range"), scope)
from jax.random import PRNGKey
from utils import set_cmdp_info
cmdp = set_cmdp_info(scope["create_cmdp"](PRNGKey(0)))
scope["RunAlgo"](cmdp, 20, 0)
start = time.process_time()
scope["RunAlgo"](cmdp, episodes, 0)
print(json.dumps(episodes / (time.process_time() - start)))
"""


def theirs(clone: str, python: str, name: str) -> float:
    command = [python, "-c", THEIRS, NAMES[name], str(THEIR_EPISODES[name])]
    out = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout
    return float(json.loads(out.splitlines()[-1]))


def ours(name: str, replan: es.Every | es.Doubling) -> float:
    cmdp, taken = es.make(name), []
    es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper(name), replan), 50)
    for seed in range(5):
        agent = es.OPSE(cmdp.task, es.Constants.paper(name), replan)
        start = time.process_time()
        es.run(cmdp, agent, EPISODES, seed)
        taken.append(time.process_time() - start)
    return EPISODES / statistics.median(taken)


def main() -> None:
    clone, python, *names = sys.argv[1:]
    print("environment  released/s  every/s  ratio  Doubling(0.3)/s  ratio")
    for name in names or NAMES:
        for _ in range(ROUNDS):
            base, every, rare = theirs(clone, python, name), ours(name, es.Every()), ours(name, es.Doubling(0.3))
            print(
                f"{name:11}  {base:10,.0f}  {every:7,.0f}  {every / base:5.1f}  {rare:15,.0f}  {rare / base:5.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
