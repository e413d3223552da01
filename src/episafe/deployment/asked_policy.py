"""What acts in one deployment, and the states at which it was asked: its report is held against them."""

import math
from hashlib import blake2b
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode
from episafe.problems.policy import Component, Policy
from episafe.problems.states import Outside, is_same_state
from episafe.types import Array

MOST_BYTES = 1_024  # of an array that is remembered as it is
MOST_STATES = 64  # of a step; who asks at more of them asks about more than he acts in


class AskedPolicy(Component):
    """The policy that acts in a deployment. It remembers the states at which it was asked, as its task reads them.

    It is judged at the states of the report: asked elsewhere, it would act where it is not judged. What is asked in
    another process, of a copy or of the plan, is not seen.
    """

    is_checked = True

    def __init__(self, acting: Policy, task: Any, states: dict[int, list[Any]]) -> None:
        known = acting if isinstance(acting, Component) else Component(acting, acting.name)
        super().__init__(known.policy, known.name, known.read, known.asked)
        self._task, self.states = task, states  # by what they are known, of each step

    def __reduce__(self) -> tuple[Any, ...]:
        return Component, (self.policy, self.name, self.read, self.asked)  # of a copy nothing is seen

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        row = super().probabilities(h, state)
        self._remember(h, state)
        return row

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h(·|state)."""
        action = super().act(h, state, rng)
        self._remember(h, state)
        return action

    def _remember(self, h: int, state: Any) -> None:
        asked, mark = self.states.setdefault(h, []), _mark_of(self._task.read(state))
        if len(asked) <= MOST_STATES and not _is_among(asked, mark):
            asked.append(mark)

    def require_reported(self, states: Any) -> None:
        """An InvalidEpisode where a report says a state in which it was not asked, at a step at which it was."""
        if not isinstance(states, list | tuple | np.ndarray):
            return  # which is refused elsewhere, or says totals alone
        for h, state in enumerate(states):
            asked = self.states.get(h, [])
            if not asked or len(asked) > MOST_STATES or type(state) is Outside:
                continue
            if not _is_among(asked, _mark_of(self._task.read(state))):
                where = "elsewhere" if isinstance(state, np.ndarray) else f"at {asked[-1]!r}"
                raise InvalidEpisode(
                    f"the report says state {state!r} at step {h}, and the policy of this deployment was asked {where} "
                    "there: report the states at which you ask, as you ask; their type counts too. To see what it "
                    "would do elsewhere, ask deployed.policy.policy"
                )


def _mark_of(state: Any) -> Any:
    """What a state is known by: itself; an array by its bytes, or their hash, all NaN and both zeros being alike."""
    if not isinstance(state, np.ndarray):
        return state
    if state.dtype.kind == "f":
        state = state + 0.0  # −0.0 + 0.0 is 0.0
        if math.isnan(state.sum()):
            state = np.where(np.isnan(state), np.nan, state).astype(state.dtype)
    content = state.tobytes() if state.nbytes <= MOST_BYTES else blake2b(state.tobytes()).digest()
    return f"{state.dtype.str}{state.shape}".encode() + content


def _is_among(marks: list[Any], mark: Any) -> bool:
    """Whether a mark is one of these, to the last bit and of one type; NaN within it is like NaN."""
    if type(mark) is bytes:
        return mark in marks
    return any(is_same_state(one, mark) or (type(one) is type(mark) and repr(one) == repr(mark)) for one in marks)
