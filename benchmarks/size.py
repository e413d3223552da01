"""Print the size of every package against its budget, and of the whole against the aims: `make size`."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "episafe"
BUDGETS = {  # lines
    "core": 900, "problems": 1700, "gym": 500, "envs": 1200, "algorithms": 1900, "linear": 1200, "kernels": 2600,
    "certify": 1900, "simulation": 1200, "session": 2200, "service": 700, "lab": 1000, "report": 1100, "data": 500,
    "testing": 300, "cli.py": 600,
}  # fmt: skip
AIMS = {"lines": 19_500, "modules": 130, "classes": 180, "hasattr, getattr": 30, "Any": 300, "raise": 350}
TEST_LINES, DOC_WORDS = 14_000, 25_000  # the docs without their appendix
PUBLIC_NAMES = 55


def measures(paths: list[Path]) -> dict[str, int]:
    """Return lines, modules, classes, and the counts that show how much is unchecked by types or checked again."""
    texts = [path.read_text() for path in paths]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    called = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return {
        "lines": sum(text.count("\n") for text in texts),
        "modules": len(paths),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "hasattr, getattr": sum(name in ("hasattr", "getattr") for name in called),
        "Any": sum(len(re.findall(r"\bAny\b", text)) for text in texts),
        "raise": sum(isinstance(node, ast.Raise) for node in nodes),
    }


def python_files(place: Path) -> list[Path]:
    """Return the Python files of a folder, or the file itself."""
    return sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []


def words(paths: list[Path]) -> int:
    """Return the number of words of text files."""
    return sum(len(path.read_text().split()) for path in paths)


def over(value: int, aim: int) -> str:
    """Return a mark for a value above its aim."""
    return "  OVER" if value > aim else ""


def main() -> None:
    """Print one row per package, the rest of the package, the totals, and one line each for tests, docs and names."""
    columns = list(AIMS)
    print(f"{'package':<12}{'budget':>8}" + "".join(f"{name:>18}" for name in columns))
    listed: list[Path] = []
    for name, budget in BUDGETS.items():
        files = python_files(SOURCE / name)
        listed += files
        found = measures(files)
        row = "".join(f"{found[one]:>18,}" for one in columns)
        print(f"{name:<12}{budget:>8,}{row}{over(found['lines'], budget)}")
    every = python_files(SOURCE)
    rest, total = measures([path for path in every if path not in listed]), measures(every)
    print(f"{'the rest':<12}{'':>8}" + "".join(f"{rest[one]:>18,}" for one in columns))
    print(f"{'all':<12}{'':>8}" + "".join(f"{total[one]:>18,}" for one in columns))
    print(f"{'aim':<12}{'':>8}" + "".join(f"{AIMS[one]:>18,}" for one in columns))
    for one in columns:
        if total[one] > AIMS[one]:
            print(f"{one}: {total[one] - AIMS[one]:,} above the aim")
    tests = measures(python_files(ROOT / "tests"))["lines"]
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "appendix" not in path.as_posix()]
    said = words([*pages, ROOT / "README.md"])
    names = re.findall(r'^    "(\w+)":', (SOURCE / "__init__.py").read_text(), re.MULTILINE)
    print(f"tests: {tests:,} lines (aim {TEST_LINES:,}){over(tests, TEST_LINES)}")
    print(f"docs: {said:,} words without the appendix (aim {DOC_WORDS:,}){over(said, DOC_WORDS)}")
    print(f"public names: {len(names)} (aim {PUBLIC_NAMES}){over(len(names), PUBLIC_NAMES)}")


if __name__ == "__main__":
    main()
