"""The trace that a loop leaves of its episodes: states, actions, and how much was known when each was planned."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.compilation import lean_kernel
from episafe.types import Array


class Trace(NamedTuple):
    """`rows` (m, w): states, then actions, each in as few bytes as it needs, lowest first; `log_dets` (m, n) when the
    plan of the episode was made. `state_bytes` and `action_bytes` are how many bytes. m = 0: nothing is written."""

    rows: NDArray[np.uint8]
    log_dets: Array
    state_bytes: int
    action_bytes: int


def blank_trace(horizon: int, num_states: int, num_actions: int, room: int) -> Trace:
    """Room for so many episodes."""
    state_bytes, action_bytes = num_bytes(num_states), num_bytes(num_actions)
    width = (horizon + 1) * state_bytes + horizon * action_bytes
    return Trace(np.zeros((room, width), dtype=np.uint8), np.zeros((room, horizon)), state_bytes, action_bytes)


def num_bytes(below: int) -> int:
    """How many bytes hold a whole number below `below`."""
    return max(1, ((below - 1).bit_length() + 7) // 8)


NO_TRACE = blank_trace(0, 1, 1, 0)  # no room, so that nothing is written down


@lean_kernel
def write_down(trace, k, states, actions, log_dets):  # type: ignore[no-untyped-def]
    """Leave episode k, states (H+1,), actions (H,) and log_dets (≤ H,), in row k mod m of the trace."""
    row, place = k % trace.rows.shape[0], 0
    for h in range(states.shape[0]):
        for b in range(trace.state_bytes):
            trace.rows[row, place] = (states[h] >> (8 * b)) & 255
            place += 1
    for h in range(actions.shape[0]):
        for b in range(trace.action_bytes):
            trace.rows[row, place] = (actions[h] >> (8 * b)) & 255
            place += 1
    for h in range(log_dets.shape[0]):
        trace.log_dets[row, h] = log_dets[h]
