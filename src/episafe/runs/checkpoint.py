"""Moved to `episafe.storage.checkpoint`: this name is kept for one release."""

import warnings

from episafe.storage.checkpoint import NAMES, DamagedCheckpoint, read, write

__all__ = ["NAMES", "DamagedCheckpoint", "read", "write"]

warnings.warn("episafe.runs.checkpoint is episafe.storage.checkpoint now", DeprecationWarning, stacklevel=2)
