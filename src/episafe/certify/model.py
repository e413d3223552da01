"""The paper's certificate: the planner's own pessimistic value."""

from dataclasses import dataclass
from typing import ClassVar

from episafe.problems.sampled import AnyTask


@dataclass(frozen=True)
class Model:
    """A policy may be deployed if the model's pessimistic value of it is at least b. As good as the constant C_u."""

    name: ClassVar[str] = "model"

    def begin(self, task: AnyTask) -> None:
        """Nothing to keep: the planner checks its own plans."""

    def settings(self) -> dict[str, str | int | float]:
        """Nothing beyond the constants."""
        return {}
