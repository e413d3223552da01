"""episafe: improve a policy online while the *expected* utility of every deployed policy stays above a threshold.

Public names are made when the first of them is asked for. Who needs one module, as the command line does, does not wait
for agents and their compiler.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from episafe import bandits as bandits
    from episafe import benchmark as benchmark
    from episafe.public_names import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A module or a public name; `es.__all__` and `es.__version__`."""
    if name == "__version__":
        return import_module("importlib.metadata").version("episafe")
    if find_spec(f"episafe.{name}"):
        return import_module(f"episafe.{name}")
    made = vars(import_module("episafe.public_names"))
    names = {known: value for known, value in made.items() if not known.startswith("_")}
    globals().update(names)
    globals()["__all__"] = sorted([*names, "bandits", "benchmark"])
    if name in globals():
        return globals()[name]
    raise AttributeError(f"module 'episafe' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What can be asked for."""
    return sorted({*__getattr__("__all__"), *globals()})
