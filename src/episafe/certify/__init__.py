"""Certifiers: they decide what may be deployed."""

from episafe.certify.box import Box
from episafe.certify.fresh_data import FreshData
from episafe.certify.guard import Both, Budget
from episafe.certify.hindsight import Hindsight
from episafe.certify.observation import Observation

__all__ = ["Both", "Box", "Budget", "FreshData", "Hindsight", "Observation"]


def __dir__() -> list[str]:
    """Return the certifiers."""
    return __all__
