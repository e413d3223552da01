"""What every task has: one constraint, or several."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from episafe.errors import InvalidProblem
from episafe.types import Amount, Array, amount, amounts


class ConstrainedTask:
    """A task by its constraints alone, an es.Constraint each."""

    constraint: Any  # an es.Constraint, or a tuple of several

    @cached_property
    def constraints(self) -> tuple[Any, ...]:
        """Every constraint, an es.Constraint each."""
        return self.constraint if isinstance(self.constraint, tuple) else (self.constraint,)

    @cached_property
    def num_constraints(self) -> int:
        """m."""
        return len(self.constraints)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """What people read of each constraint; "utility" where there is one without a name."""
        return tuple(one.name or "utility" for one in self.constraints)

    @property
    def incumbent_name(self) -> str:
        """A hash of what stands for the incumbent, where that is a text or a number; "" where it is a policy."""
        return ""

    @property
    def read(self) -> Callable[[Any], Any] | None:
        """What policies read a state by before they are asked; None where every state is as the task has it."""
        return None

    def asked_at(self, said: Any) -> Any:
        """The state that a policy is asked at, as somebody says it; what cannot be one is refused."""
        return self.as_state(said)

    def as_state(self, said: Any) -> Any:
        """A state as somebody says it, over the wire too, as the task has it; here as it is."""
        return said

    def require_state(self, state: Any) -> None:
        """An error where nobody can be in a state; here everything may be one."""

    def only(self, what: str) -> Any:
        """What the one constraint has; an error where there are several, so that nobody takes the first for all."""
        if self.num_constraints > 1:
            raise InvalidProblem(
                f"the task has {self.num_constraints} constraints ({', '.join(self.constraint_names)}), and no one "
                f"{what}: read it of each of task.constraints, or use what takes several (docs/several-constraints.md)"
            )
        return getattr(self.constraints[0], what)

    @cached_property
    def threshold(self) -> float:
        """b; a policy is safe if its expected total utility is at least b. An error where there are several."""
        return self.only("threshold")

    @cached_property
    def slack(self) -> float | None:
        """ξ; None where it is not known. An error where there are several constraints."""
        return self.only("slack")

    @cached_property
    def least_total(self) -> float:
        """What the total utility of every episode is at least. An error where there are several constraints."""
        return self.only("least_total")

    @cached_property
    def limits(self) -> Amount:
        """b, or (m,) of them where there are several constraints: what bounds are held against."""
        b = np.array([one.threshold for one in self.constraints])
        b.setflags(write=False)  # it is handed to many
        return amount(b)

    @property
    def thresholds(self) -> Array:
        """b (m,), (1,) where there is one."""
        return amounts(self.limits)

    @property
    def stated_utility(self) -> Amount:
        """b + ξ, what the incumbent is said to have, or (m,); b where the slack is not known."""
        return amount([one.threshold + (one.slack or 0.0) for one in self.constraints])
