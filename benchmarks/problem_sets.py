"""Freeze the problem sets of the benchmark, or check what is frozen.

    python benchmarks/problem_sets.py freeze > src/episafe/benchmark/episafe-bench-1.csv    # once, for a new version
    python benchmarks/problem_sets.py check                                                # every problem; some minutes

`check` recomputes hashes, optima and the incumbents' rewards, and names what differs.
"""

import sys

from episafe.benchmark.problem_sets import PROBLEM_SETS, VERSION, is_close


def freeze():
    print("set,seed,hash,optimum,incumbent_reward")
    for one in PROBLEM_SETS.values():
        for seed, found in one.freeze_all():
            print(f"{one.name},{seed},{found.hash},{found.optimum:.12g},{found.incumbent_reward:.12g}", flush=True)


def check():
    places = [(one, seed) for one in PROBLEM_SETS.values() for seed in (*one.seeds, *one.tuning_seeds)]
    wrong = [(one.name, seed) for one, seed in places if not is_close(one.freeze(seed), one.frozen(seed))]
    print(f"{VERSION}: {len(places)} problems, {len(wrong)} differ")
    for name, seed in wrong:
        print(f"{name} {seed}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit({"freeze": freeze, "check": check}[sys.argv[1] if len(sys.argv) > 1 else "check"]())
