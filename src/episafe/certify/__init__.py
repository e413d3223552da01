"""Certifiers: they decide what may be deployed. Each is imported at its first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from episafe.certify.box import Box
    from episafe.certify.fresh_data import FreshData
    from episafe.certify.guard import Both, Budget
    from episafe.certify.hindsight import Hindsight
    from episafe.certify.observation import Observation

__all__ = ["Both", "Box", "Budget", "FreshData", "Hindsight", "Observation"]

_MODULES = {
    "Both": "guard",
    "Box": "box",
    "Budget": "guard",
    "FreshData": "fresh_data",
    "Hindsight": "hindsight",
    "Observation": "observation",
}


def __getattr__(name: str) -> type:
    """Import a certifier."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = vars(import_module(f"{__name__}.{_MODULES[name]}"))[name]
    return found


def __dir__() -> list[str]:
    """Return the certifiers."""
    return __all__
