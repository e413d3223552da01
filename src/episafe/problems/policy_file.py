"""The file of a policy: JSON of a documented schema, docs/policies.md, written whole and read without trust."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from episafe.checks import as_finite
from episafe.errors import DamagedFile, InvalidProblem
from episafe.storage.atomic_files import as_output, write_text
from episafe.storage.regular_files import read_regular
from episafe.types import Array

VERSION = 1  # of the schema
MARK = "episafe_policy"  # the field that says it
LARGEST = 1 << 28  # bytes
REMEDY = "save the policy again, or give its own file"


def write_policy(path: Path, policy: Any, certificate: Mapping[str, Any] | None) -> None:
    """Write a policy, atomically; numbers come back to the last bit."""
    said = {MARK: VERSION, "name": policy.name, "certificate": dict(certificate or {}), **policy.as_json()}
    try:
        text = json.dumps(said, allow_nan=False, indent=None, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"a policy cannot be written ({error}): its certificate must be plain values") from error
    write_text(as_output(path), text + "\n")


def read_policy(path: Path) -> "Field":
    """What a file says, to be read field by field; refused if it is of another schema."""
    try:
        said = json.loads(read_regular(path, LARGEST, REMEDY), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(f"{path} is no JSON ({error}): {REMEDY}") from error
    field = Field(path, "the policy", said)
    version = field.said.get(MARK)
    if isinstance(version, bool) or not isinstance(version, int):
        field.refuse(MARK, "is not there: it is no policy of episafe")
    if version != VERSION:
        field.refuse(MARK, f"is {version}, and this version knows {VERSION}: update episafe, or save it again")
    return field


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


class Field:
    """An object of a file that is being read: what is missing or not as it must be is a DamagedFile with its name.

    Args:
        path: of the file.
        place: what the object is, in words.
        said: what stands there.
    """

    def __init__(self, path: Path, place: str, said: Any) -> None:
        self.path, self.place = path, place
        if not isinstance(said, dict):
            raise DamagedFile(f"{path}: {place} is no object: {REMEDY}")
        self.said: dict[str, Any] = said

    def refuse(self, name: str, why: str) -> NoReturn:
        """The error that names the field."""
        raise DamagedFile(f"{self.path}: {name!r} of {self.place} {why}: {REMEDY}")

    def value(self, name: str, kind: type) -> Any:
        """A value of this type."""
        found = self.said.get(name)
        if type(found) is not kind:
            self.refuse(name, f"is {_short(found)} and no {kind.__name__}")
        return found

    def whole(self, name: str) -> int:
        """A whole number ≥ 1."""
        found: int = self.value(name, int)
        if not 1 <= found < 2**31:
            self.refuse(name, f"is {found}")
        return found

    def number(self, name: str, least: float) -> float:
        """A number ≥ least."""
        found = float(self.numbers(name, ()))
        if not found >= least:
            self.refuse(name, f"is {found}, below {least:g}")
        return found

    def numbers(self, name: str, shape: tuple[int | None, ...]) -> Array:
        """Finite numbers of this shape."""
        if name not in self.said:
            self.refuse(name, "is not there")
        try:
            return as_finite(name, self.said[name], shape)
        except (InvalidProblem, OverflowError, RecursionError) as error:
            self.refuse(name, f"is not as it must be ({error})")

    def objects(self, name: str) -> "list[Field]":
        """A list of objects."""
        rows = self.value(name, list)
        return [Field(self.path, f"{name} {i} of {self.place}", row) for i, row in enumerate(rows)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}…"
