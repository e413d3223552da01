"""Episodes per second of OPSE beside the paper's released JAX code, in one run on one core.

Times are CPU seconds of the process. The released code is not part of episafe: clone
matsuolab/Episode-Wise-Safe-Linear-CMDP, and make an environment there with what it needs (jax, chex, mpax, tqdm,
matplotlib). Then:

    python benchmarks/released.py CLONE [--python CLONE/.venv/bin/python] [--rounds 1] [tabular streaming linear]

`Doubling(0.3)` includes building the problem; the other columns time the run alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import episafe as es

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"  # `import episafe` does not import NumPy yet

NAMES = {"tabular": "random", "streaming": "streaming", "linear": "linear"}  # ours: theirs
EPISODES = 10_000
THEIR_EPISODES = {"tabular": 5_000, "streaming": 5_000, "linear": 1_500}  # enough for a steady pace

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


def theirs(clone: Path, python: Path, name: str) -> float:
    """Return the episodes per second of the released code."""
    command = [str(python), "-c", THEIRS, NAMES[name], str(THEIR_EPISODES[name])]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def ours(name: str, variant: str, replan: es.Every | es.Doubling, fresh: bool = False) -> float:
    """Return the episodes per second of OPSE, the median of three runs; `fresh` counts building the problem too."""
    cmdp, constants, taken = es.make(name), es.Constants.paper(name), []
    es.run(cmdp, es.OPSE(cmdp.task, constants, replan, variant), 50)  # compiles
    for seed in range(3):
        start = time.process_time()
        cmdp = es.make(name, seed) if fresh else cmdp
        agent = es.OPSE(cmdp.task, constants, replan, variant)
        start = start if fresh else time.process_time()
        es.run(cmdp, agent, EPISODES, seed)
        taken.append(time.process_time() - start)
    return EPISODES / statistics.median(taken)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="OPSE beside the released JAX code, episodes per second")
    parser.add_argument("clone", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--python", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    clone = given.clone.resolve()
    python = given.python or clone / ".venv" / "bin" / "python"
    print("environment  JAX code/s  text/s  ratio  released rules/s  ratio  Doubling(0.3)/s  ratio")
    for name in given.names:
        for _ in range(given.rounds):
            base = theirs(clone, python, name)
            text, released = (ours(name, variant, es.Every()) for variant in ("text", "released"))
            rare = ours(name, "text", es.Doubling(0.3), fresh=True)
            print(
                f"{name:11}  {base:10,.0f}  {text:6,.0f}  {text / base:4.0f}x  {released:16,.0f}  "
                f"{released / base:4.0f}x  {rare:15,.0f}  {rare / base:4.0f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
