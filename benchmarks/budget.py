"""Print the size of every package against its budget: `python benchmarks/budget.py`."""

import ast
import re
import sys
from pathlib import Path

BUDGETS = {
    "core": 900,
    "problems": 1700,
    "gym": 500,
    "envs": 1200,
    "algorithms": 1900,
    "linear": 1200,
    "kernels": 2600,
    "certify": 1900,
    "run": 1200,
    "session": 2200,
    "service": 700,
    "lab": 1000,
    "report": 1100,
    "data": 500,
    "testing": 300,
    "cli.py": 600,
}
TOTALS = {"lines": 19_500, "modules": 130, "classes": 180, "hasattr, getattr": 30, "raise": 350, "Any": 300}


def measures(paths: list[Path]) -> dict[str, int]:
    """Return lines, modules, classes and the counts that show how much is checked or untyped."""
    texts = [path.read_text() for path in paths]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    called = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return {
        "lines": sum(text.count("\n") for text in texts),
        "modules": len(paths),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "hasattr, getattr": sum(name in ("hasattr", "getattr") for name in called),
        "raise": sum(isinstance(node, ast.Raise) for node in nodes),
        "Any": sum(len(re.findall(r"\bAny\b", text)) for text in texts),
    }


def words(paths: list[Path]) -> int:
    """Return the number of words of text files."""
    return sum(len(path.read_text().split()) for path in paths)


def main(package: str) -> None:
    """Print one row per package, the totals, the tests and the docs."""
    root = Path(__file__).parent.parent
    source = root / "src" / package
    names = list(TOTALS)
    print(f"{'package':<14}{'budget':>8}" + "".join(f"{name:>18}" for name in names))
    for name, budget in BUDGETS.items():
        folder = source / name
        found = measures(sorted(folder.rglob("*.py")) if folder.is_dir() else [folder] if folder.exists() else [])
        print(f"{name:<14}{budget:>8,}" + "".join(f"{found[one]:>18,}" for one in names))
    total = measures(sorted(source.rglob("*.py")))
    print(f"{'all':<14}{'':>8}" + "".join(f"{total[one]:>18,}" for one in names))
    print(f"{'aim':<14}{'':>8}" + "".join(f"{TOTALS[one]:>18,}" for one in names))
    tests = sorted((root / "tests").rglob("*.py"))
    print(f"\ntests: {measures(tests)['lines']:,} lines (aim 14,000)")
    print(f"docs: {words(sorted((root / 'docs').rglob('*.md'))):,} words (aim 25,000 without the appendix)")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "episafe")
