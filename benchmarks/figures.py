"""Which figures of the docs are older than the code that makes them? `python benchmarks/figures.py [--stamp NAME]`.

docs/figures/made.toml says of each figure its command, the code behind it, and the hash of that code when it was made.
After making a figure again, stamp it. Exit code 1 if one is older than its code.
"""

import argparse
import ast
import hashlib
import sys
import tomllib
from pathlib import Path

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


def older(made: dict[str, dict]) -> list[str]:
    """The figures whose code has changed since they were made."""
    return [name for name, one in made.items() if hash_of(one["code"]) != one["hash"]]


def stamp(name: str, made: dict[str, dict]) -> None:
    """Write down that a figure was made by the code as it is."""
    made[name]["hash"] = hash_of(made[name]["code"])
    lines = [
        "# by `python benchmarks/figures.py --stamp NAME`; a hash is that of the code when the figure was made",
        "",
    ]
    for figure, one in made.items():
        code = ", ".join(f'"{pattern}"' for pattern in one["code"])
        lines += [f'["{figure}"]', f'command = "{one["command"]}"', f"code = [{code}]", f'hash = "{one["hash"]}"', ""]
    MADE.write_text("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stamp", metavar="NAME", help="this figure was just made again")
    asked = parser.parse_args()
    made = tomllib.loads(MADE.read_text())
    if asked.stamp:
        stamp(asked.stamp, made)
    missing = [path.name for path in FIGURES.glob("*.png") if path.name not in made]
    for name in missing:
        print(f"{name}: nobody says how it is made: add it to {MADE.relative_to(ROOT)}")
    for name in older(made):
        print(f"{name}: older than its code; make it again by `{made[name]['command']}`")
    return 1 if missing or older(made) else 0


if __name__ == "__main__":
    sys.exit(main())
