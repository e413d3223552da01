"""What a user names as `module:name`, and the errors of the user's own code, with the line where they arose."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_paths
from traceback import extract_tb
from typing import Any

from episafe.errors import InvalidProblem

OURS = str(Path(__file__).parents[1])
BETWEEN = (importlib.__file__, contextlib.__file__)  # where nothing arises: they call what is ours or theirs
INSTALLED = tuple({get_paths()[name] for name in ("stdlib", "purelib", "platlib")})


def named(name: str) -> Any:
    """What `module:name` stands for, installed or from the current folder.

    The folder comes last: a file there that is called as a module of Python or of a package does not take its place.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"give module:name, e.g. shop:problem for `problem` in shop.py, got {name!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    with errors_inside(module):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # of a module that this one imports
            raise ValueError(
                f"{module!r} cannot be imported: there is no module {error.name!r}; run from the folder of {module}.py "
                "or install it"
            ) from None
    if not hasattr(found, attribute):
        place = getattr(found, "__file__", None) or "built in"
        raise ValueError(f"{module} has no {attribute!r}: it is {place}; correct the name, or name another module")
    return getattr(found, attribute)


def named_problem(name: str) -> Any:
    """The problem that `module:name` stands for, or that a function of this name makes."""
    found = named(name)
    if callable(found):
        with errors_inside(name):
            found = found()
    if not hasattr(found, "task"):
        kind = type(found).__name__
        raise ValueError(f"{name} is a {kind}: name a problem with a task, or a function of nothing that makes one")
    return found


@contextmanager
def errors_inside(what: str) -> Iterator[None]:
    """Say of an error of the user's code where it arose; what we refuse ourselves stays what it is."""
    try:
        yield
    except Exception as error:
        place = _place(error)
        if not place:
            raise
        kind = InvalidProblem if isinstance(error, InvalidProblem) else ValueError
        raise kind(f"{what}: {place}: {type(error).__name__}: {error}") from error


def _place(error: Exception) -> str:
    """The innermost line of the user's own in the traceback, else of another package; "" where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith((OURS, "<frozen"))]
    own = [frame for frame in frames if not frame.filename.startswith(INSTALLED)]
    found = (own or [frame for frame in frames if frame.filename not in BETWEEN])[-1:]
    return "".join(f"{frame.filename}, line {frame.lineno}" for frame in found)
