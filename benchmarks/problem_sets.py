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
    checked, wrong = 0, []
    for one in PROBLEM_SETS.values():
        seeds = (*one.seeds, *one.tuning_seeds)
        differ = [seed for seed in seeds if not is_close(one.freeze(seed), one.frozen(seed))]
        print(f"{one.name}: {len(seeds)} problems, {len(differ)} differ {differ or ''}".rstrip(), flush=True)
        checked, wrong = checked + len(seeds), wrong + differ
    print(f"{VERSION}: {checked} problems, {len(wrong)} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit({"freeze": freeze, "check": check}[sys.argv[1] if len(sys.argv) > 1 else "check"]())
