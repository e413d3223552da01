"""States as named arrays: flat, under dotted names; read back entry by entry, each one checked."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.types import Array, IntArray

State = dict[str, NDArray[Any]]
Shape = tuple[int | None, ...]


def under(name: str, entries: Mapping[str, Any]) -> State:
    """Copies of `entries`, their names below `name`."""
    return {f"{name}.{key}": np.array(value) for key, value in entries.items()}


class Saved:
    """A state that is being read. An entry that is missing, left over or not as it must be is a DamagedFile.

    Args:
        state: named arrays, from anywhere: nothing in them is trusted.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._left, self._prefix = dict(state), ""

    def under(self, name: str) -> "Saved":
        """The entries below `name`."""
        below = Saved({})
        below._left, below._prefix = self._left, f"{self._prefix}{name}."
        return below

    def refuse(self, name: str, why: str) -> NoReturn:
        """The error that names the entry."""
        raise DamagedFile(f"{self._prefix}{name} of the state {why}: it is damaged or not of this agent; take another")

    def has(self, name: str) -> bool:
        """Whether there is such an entry."""
        return self._prefix + name in self._left

    def end(self) -> None:
        """Refuse what was not asked for."""
        if self._left:
            self.refuse(min(map(str, self._left)), "is not known here")

    def width(self, name: str) -> int:
        """How long the last axis of an entry is, before it is read."""
        given = self._given(name)
        if given.ndim == 0:
            self.refuse(name, "is one number and no array")
        return int(given.shape[-1])

    def numbers(
        self, name: str, shape: Shape, *, least: float = -np.inf, nan: bool = False, inf: bool = False
    ) -> Array:
        """Real numbers of this shape (None: any length), at least `least`; NaN and infinity only where they may be."""
        found = self._take(name, shape, np.dtype(np.float64))
        if not (np.isfinite(found) | (np.isnan(found) & nan) | (np.isinf(found) & inf)).all():
            self.refuse(name, "holds what is no finite number")
        if (found < least).any():
            self.refuse(name, f"holds a number below {least:g}")
        return found

    def number(self, name: str, *, least: float = -np.inf, nan: bool = False, inf: bool = False) -> float:
        """One real number."""
        return float(self.numbers(name, (), least=least, nan=nan, inf=inf))

    def wholes(self, name: str, shape: Shape, least: int, below: int) -> IntArray:
        """Whole numbers of this shape in [least, below)."""
        found = self._take(name, shape, np.dtype(np.int64))
        if ((found < least) | (found >= below)).any():
            self.refuse(name, f"holds a number outside [{least}, {below})")
        return found

    def whole(self, name: str, least: int = 0, below: int = 2**62) -> int:
        """One whole number in [least, below)."""
        return int(self.wholes(name, (), least, below))

    def flags(self, name: str, shape: Shape) -> NDArray[np.bool_]:
        """Truth values of this shape."""
        return self._take(name, shape, np.dtype(np.bool_))

    def octets(self, name: str) -> bytes:
        """Bytes."""
        return self._take(name, (None,), np.dtype(np.uint8)).tobytes()

    def texts(self, name: str, shape: Shape) -> NDArray[np.str_]:
        """Strings of this shape."""
        given = self._given(name)
        if given.dtype.kind != "U":
            self.refuse(name, f"has type {given.dtype}, not text")
        return self._take(name, shape, given.dtype)

    def text(self, name: str) -> str:
        """One string."""
        return str(self.texts(name, ())[()])

    def _given(self, name: str) -> NDArray[Any]:
        given = self._left.get(self._prefix + name)
        if given is None:
            self.refuse(name, "is missing")
        if not isinstance(given, np.ndarray):
            self.refuse(name, f"is {type(given).__name__} and no array")
        return given

    def _take(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> NDArray[Any]:
        given = self._given(name)
        if given.dtype != dtype:
            self.refuse(name, f"has type {given.dtype}, not {dtype}")
        fits = len(shape) == given.ndim and all(w in (None, n) for w, n in zip(shape, given.shape, strict=True))
        if not fits:
            wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
            self.refuse(name, f"has shape {given.shape}, not {wanted}")
        del self._left[self._prefix + name]
        return np.array(given, order="C")
