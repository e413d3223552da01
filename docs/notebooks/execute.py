"""Make the notebooks: `make notebooks`, or `python docs/notebooks/execute.py [NAME …]`.

A notebook is a Python file here: "# %% [markdown]" begins a cell of words, "# %%" one of code. It is run from its top by
Jupyter's own client in an empty folder, and kept with what it printed and drew as NAME.ipynb.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
MARK = re.compile(r"^# %%(?P<words> \[markdown\])?\n", flags=re.M)
KEPT = ("image/png", "text/plain")  # of what a cell shows: one of them, the first that there is


def cells_of(text: str) -> list[tuple[str, str]]:
    """Kind ("markdown" or "code") and source of each cell."""
    marks = list(MARK.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    found = [(bool(mark["words"]), text[mark.end() : end].strip("\n")) for mark, end in zip(marks, ends, strict=True)]
    return [("markdown", re.sub(r"^# ?", "", body, flags=re.M)) if words else ("code", body) for words, body in found]


def executed(source: Path) -> Any:
    """The notebook of a Python file, with what its cells print and draw."""
    made = nbformat.v4.new_notebook()
    for place, (kind, body) in enumerate(cells_of(source.read_text())):
        new = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        made.cells.append(new(body, id=f"{source.stem}-{place}"))
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(made, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in made.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", []):
            if "data" in output:
                kind = next(kind for kind in KEPT if kind in output["data"])
                output["data"] = {kind: output["data"][kind]}
                output["metadata"] = {}
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return made


def main() -> None:
    """Execute the notebooks that are named, or all."""
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.name != Path(__file__).name)
    for name in names:
        nbformat.write(executed(HERE / f"{name}.py"), HERE / f"{name}.ipynb")
        print(f"wrote {HERE / name}.ipynb")


if __name__ == "__main__":
    main()
