"""Grid worlds: a rover among pits, a box that should not end in a corner, and a path along a cliff.

`horizon` is H; `slip` is the probability that a move is one of the four at random; `limit` is the cost of an episode
that is allowed on average, b = H − limit; `slack` is that of the incumbent, the best policy of utility b + slack.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from typing import TypeVar

import numpy as np

from episafe.core.types import Array
from episafe.envs.common import check_range, cost_limited
from episafe.problems.linear import LinearCMDP

Cell = tuple[int, int]
State = TypeVar("State", bound=Hashable)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right
WALL, START, GOAL, PIT, BOX = "#SGPX"  # signs of the maps; a dot is a free cell
MARS = (
    "S.......",
    "........",
    "...P..P.",
    "........",
    "........",
    ".PP.....",
    ".P..P.P.",
    "...P...G",
)
YARD = (
    ".S##",
    ".X..",
    "#...",
    "##.G",
)


def rover(
    rng: np.random.Generator, *, horizon: int = 30, slip: float = 0.1, limit: float = 0.3, slack: float = 0.2
) -> LinearCMDP:
    """A rover on its way to the goal; goal and pits end the way. Reward and cost are 1 on arrival, 1/H a step after it.

    After Brantley et al., "Constrained episodic reinforcement learning in concave-convex and knapsack settings"
    (NeurIPS 2020), by their released code. A pit pays as the goal does: the constraint is all that keeps the rover on
    its way. The optimum is 1.5363. They have no incumbent: the slack is ours.
    """
    cells = _cells(MARS)

    def step(cell: Cell, move: Cell) -> tuple[Cell, float, float]:
        if cells[cell] in GOAL + PIT:
            return cell, 1 / horizon, float(cells[cell] == PIT) / horizon
        there = _beside(cell, move)
        sign = cells.get(there, WALL)
        return cell if sign == WALL else there, float(sign in GOAL + PIT), float(sign == PIT)

    start = list(cells).index(_place(cells, START))
    return cost_limited(_walked(list(cells), step, slip), horizon, limit, slack, initial_state=start)


def box(
    rng: np.random.Generator, *, horizon: int = 30, slip: float = 0.1, limit: float = 0.1, slack: float = 0.06
) -> LinearCMDP:
    """A walker in the way of a box, which it pushes. Reward 1 at the goal, 1/H a step after; cost 1/H with a stuck box.

    After Brantley et al. 2020 (see `rover`), by their released code; the yard is that of Leike et al., "AI Safety
    Gridworlds" (2017). A box is stuck with walls on two sides. The short way pushes it into a corner, the long one
    does not. The optimum is 1.7497. They have no incumbent: the slack is ours.
    """
    cells = _cells(YARD)
    goal = _place(cells, GOAL)

    def step(state: tuple[Cell, Cell], move: Cell) -> tuple[tuple[Cell, Cell], float, float]:
        walker, pushed = state
        following, paid = state, 0.0
        if walker == goal:
            paid = 1 / horizon
        else:
            there = _beside(walker, move)
            then = _beside(pushed, move) if there == pushed else pushed
            if there in cells and then in cells:
                following, paid = (there, then), float(there == goal)
        stuck = sum(_beside(following[1], side) not in cells for side in MOVES) >= 2
        return following, paid, stuck / horizon

    start = _place(cells, START), _place(cells, BOX)
    return cost_limited(_walked(_reached(start, step), step, slip), horizon, limit, slack)


def cliff(
    rng: np.random.Generator, *, horizon: int = 15, slip: float = 0.0, limit: float = 2.0, slack: float = 0.5
) -> LinearCMDP:
    """A path from the lower left corner to the lower right one, with a cliff between them: a fall leads to the start.

    From Simão, Jansen, Spaan, "AlwaysSafe" (AAMAS 2021), by their released code: 4 rows, 6 columns, no slip. To enter
    an inner cell of row i costs i, here i/2 so that it is in [0, 1]: the near way is the dear one. The limit is in
    their units, b = H − limit/2. Reward is 1 from the goal on; they pay −1 for each step before it, so that their value
    is ours − H, and −100 for a fall, which no optimum has. The optimum is 5, in 10 steps on average.
    """
    bottom, right, dearest = 3, 5, 2
    start, goal = (bottom, 0), (bottom, right)

    def step(cell: Cell, move: Cell) -> tuple[Cell, float, float]:
        if cell == goal:
            return cell, 1.0, 0.0
        row, column = _beside(cell, move)
        row, column = min(max(row, 0), bottom), min(max(column, 0), right)
        inner = 0 < column < right
        if row == bottom and inner:
            return start, 0.0, 0.0
        return (row, column), 0.0, row / dearest if inner else 0.0

    return cost_limited(_walked(_reached(start, step), step, slip), horizon, limit / dearest, slack)


def _walked(
    states: Sequence[State], step: Callable[[State, Cell], tuple[State, float, float]], slip: float
) -> tuple[Array, Array, Array]:
    """Return P (S, A, S), reward and utility 1 − cost (S, A). With probability `slip` the move is a random one.

    `step(state, move)` is the next state, the reward and the cost of a move that is made.
    """
    index = {state: s for s, state in enumerate(states)}
    check_range("slip", slip, 0, 1)
    made = (1 - slip) * np.eye(len(MOVES)) + slip / len(MOVES)
    kernel, signals = np.zeros((len(states), len(MOVES), len(states))), np.zeros((2, len(states), len(MOVES)))
    for (state, s), (m, move) in product(index.items(), enumerate(MOVES)):
        following, reward, cost = step(state, move)
        kernel[s, :, index[following]] += made[:, m]
        signals[0, s] += made[:, m] * reward
        signals[1, s] += made[:, m] * cost
    return kernel, signals[0], 1 - signals[1]


def _reached(start: State, step: Callable[[State, Cell], tuple[State, float, float]]) -> list[State]:
    """Return the states that moves lead to, the first one first."""
    found, waiting = [start], [start]
    while waiting:
        state = waiting.pop()
        for move in MOVES:
            following = step(state, move)[0]
            if following not in found:
                found.append(following)
                waiting.append(following)
    return found


def _cells(grid: Sequence[str]) -> dict[Cell, str]:
    """Return the sign of each cell that is no wall."""
    return {(i, j): sign for i, row in enumerate(grid) for j, sign in enumerate(row) if sign != WALL}


def _place(cells: dict[Cell, str], sign: str) -> Cell:
    return list(cells)[list(cells.values()).index(sign)]


def _beside(cell: Cell, move: Cell) -> Cell:
    return cell[0] + move[0], cell[1] + move[1]
