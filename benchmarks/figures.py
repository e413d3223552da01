"""Which figures of the docs are older than the code that makes them? `python benchmarks/figures.py [--stamp NAME]`.

docs/figures/made.toml says of each figure its command, the code that draws it and the code that computes what is drawn,
with their hashes when it was made, and short runs ("environment agent episodes", seed 0) with the hash of what came of
them. A figure is older if what draws it has changed, or if what computes it has and some of its short runs came out
differently: code that was only moved about makes the same figure. One without short runs is older by its code alone.
After making a figure again, stamp it. Exit code 1 if one is older.
"""

import argparse
import ast
import hashlib
import sys
import tomllib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
MADE = FIGURES / "made.toml"


def hash_of(patterns: list[str]) -> str:
    """One hash over all files that the patterns name, in order."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}):
        found.update(str(path.relative_to(ROOT)).encode())
        found.update(what_runs(path.read_text()).encode() if path.suffix == ".py" else path.read_bytes())
    return found.hexdigest()[:16]


def what_runs(source: str) -> str:
    """Python without comments, docstrings and layout, which no figure shows."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def bits_of(runs: list[str]) -> str:
    """One hash over the exact values of short runs, to nine digits: processors differ in the last ones."""
    from episafe.experiments.job import Job

    found = hashlib.sha256()
    for said in runs:
        env, agent, number = said.split()
        record = Job("short", env, agent, 0, int(number)).record()
        for values in (record.reward_values, record.utility_values):
            found.update(np.char.mod("%.9g", values).tobytes())
    return found.hexdigest()[:16]


def is_older(one: dict) -> bool:
    """Whether a figure may look otherwise if it is made again."""
    if hash_of(one["drawn_by"]) != one["drawn"]:
        return True
    if hash_of(one["computed_by"]) == one["computed"]:
        return False
    return not one["runs"] or bits_of(one["runs"]) != one["bits"]


def stamp(name: str, made: dict[str, dict]) -> None:
    """Write down that a figure was made by the code as it is."""
    one = made[name]
    one |= {"drawn": hash_of(one["drawn_by"]), "computed": hash_of(one["computed_by"]), "bits": bits_of(one["runs"])}
    lines = ["# by `python benchmarks/figures.py --stamp NAME`; its head says what stands here", ""]
    for figure, said in made.items():
        lines.append(f'["{figure}"]')
        for key, value in said.items():
            listed = ", ".join(f'"{each}"' for each in value) if isinstance(value, list) else None
            lines.append(f'{key} = "{value}"' if listed is None else f"{key} = [{listed}]")
        lines.append("")
    MADE.write_text("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stamp", metavar="NAME", help="this figure was just made again")
    asked = parser.parse_args()
    made = tomllib.loads(MADE.read_text())
    if asked.stamp:
        stamp(asked.stamp, made)
        return 0
    missing = [path.name for path in FIGURES.glob("*.png") if path.name not in made]
    for name in missing:
        print(f"{name}: nobody says how it is made: add it to {MADE.relative_to(ROOT)}")
    older = [name for name, one in made.items() if is_older(one)]
    for name in older:
        print(f"{name}: older than its code; make it again by `{made[name]['command']}`")
    return 1 if missing or older else 0


if __name__ == "__main__":
    sys.exit(main())
