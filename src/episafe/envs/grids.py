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
FREE, WALL, START, GOAL, PIT, BOX = ".#SGPX"
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
    rng: np.random.Generator,
    *,
    grid: tuple[str, ...] = MARS,
    horizon: int = 30,
    slip: float = 0.1,
    pit_reward: float = 1.0,
    limit: float = 0.3,
    slack: float = 0.2,
) -> LinearCMDP:
    """A rover on its way to the goal; goal and pits end the way. Reward and cost are 1 on arrival, 1/H a step after it.

    After Brantley et al., "Constrained episodic reinforcement learning in concave-convex and knapsack settings"
    (NeurIPS 2020), by their released code. There a pit pays as the goal does: the constraint is all that keeps the
    rover on its way. With `pit_reward=0` it does not bind. The optimum is 1.5363. They have no incumbent: the slack is
    ours.

    Args:
        grid: rows of S start, G goal, P pit, # wall and . free; the default is the map of the code.
        pit_reward: reward of a pit, as a share of the goal's.
    """
    for name, share in (("slip", slip), ("pit_reward", pit_reward)):
        check_range(name, share, 0, 1)
    cells = _cells(grid, START + GOAL, FREE + WALL + PIT)
    paid = {cell: {GOAL: 1.0, PIT: pit_reward}.get(sign, 0.0) for cell, sign in cells.items()}
    cost = {cell: float(sign == PIT) for cell, sign in cells.items()}

    def step(cell: Cell, move: Cell) -> tuple[Cell, float, float]:
        if cells[cell] in GOAL + PIT:
            return cell, paid[cell] / horizon, cost[cell] / horizon
        there = _beside(cell, move)
        return (there, paid[there], cost[there]) if there in cells else (cell, 0.0, 0.0)

    start = list(cells).index(_place(cells, START))
    return cost_limited(_walked(list(cells), step, slip), horizon, limit, slack, initial_state=start)


def box(
    rng: np.random.Generator,
    *,
    grid: tuple[str, ...] = YARD,
    horizon: int = 30,
    slip: float = 0.1,
    limit: float = 0.1,
    slack: float = 0.06,
) -> LinearCMDP:
    """A walker in the way of a box, which it pushes. Reward 1 at the goal, 1/H a step after; cost 1/H with a stuck box.

    After Brantley et al. 2020 (see `rover`), by their released code; the yard is that of Leike et al., "AI Safety
    Gridworlds" (2017). A box is stuck with walls on two sides. The short way pushes it into a corner, the long one
    does not. The optimum is 1.7497. They have no incumbent: the slack is ours.

    Args:
        grid: rows of S start, G goal, X box, # wall and . free; the default is the map of the code.
    """
    check_range("slip", slip, 0, 1)
    cells = _cells(grid, START + GOAL + BOX, FREE + WALL)
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
    rng: np.random.Generator,
    *,
    num_rows: int = 4,
    num_columns: int = 6,
    horizon: int = 15,
    slip: float = 0.0,
    limit: float = 2.0,
    slack: float = 0.5,
) -> LinearCMDP:
    """A path from the lower left corner to the lower right one, with a cliff between them: a fall leads to the start.

    From Simão, Jansen, Spaan, "AlwaysSafe" (AAMAS 2021), by their released code. To enter an inner cell of row i costs
    i, here i/(rows − 2) so that it is in [0, 1]: the near way is the dear one. Reward is 1 from the goal on; they pay
    −1 for each step before it, so that their value is ours − H, and −100 for a fall, which no optimum has. The optimum
    is 5, in 10 steps on average.

    Args:
        num_rows, num_columns: of the grid, at least 3 each; S is their product less the cliff's cells.
        slip: they have none.
        limit: in their units; b = H − limit/(rows − 2).
    """
    if min(num_rows, num_columns) < 3:
        raise ValueError(f"num_rows and num_columns must be at least 3, got {num_rows} and {num_columns}")
    check_range("slip", slip, 0, 1)
    dearest, bottom, right = num_rows - 2, num_rows - 1, num_columns - 1
    check_range("limit", limit, 0, horizon * dearest)
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
    """P (S, A, S), reward and utility 1 − cost (S, A). With probability `slip` the move is a random one.

    `step(state, move)` is the next state, the reward and the cost of a move that is made.
    """
    index = {state: s for s, state in enumerate(states)}
    made = (1 - slip) * np.eye(len(MOVES)) + slip / len(MOVES)
    kernel, signals = np.zeros((len(states), len(MOVES), len(states))), np.zeros((2, len(states), len(MOVES)))
    for (state, s), (m, move) in product(index.items(), enumerate(MOVES)):
        following, reward, cost = step(state, move)
        kernel[s, :, index[following]] += made[:, m]
        signals[0, s] += made[:, m] * reward
        signals[1, s] += made[:, m] * cost
    return kernel, signals[0], 1 - signals[1]


def _reached(start: State, step: Callable[[State, Cell], tuple[State, float, float]]) -> list[State]:
    """The states that moves lead to, the first one first."""
    found, waiting = [start], [start]
    while waiting:
        state = waiting.pop()
        for move in MOVES:
            following = step(state, move)[0]
            if following not in found:
                found.append(following)
                waiting.append(following)
    return found


def _cells(grid: Sequence[str], once: str, others: str) -> dict[Cell, str]:
    """Sign of each cell that is no wall; refuses other signs, and all but one of each in `once`."""
    if not grid or any(not isinstance(row, str) or len(row) != len(grid[0]) for row in grid):
        raise ValueError(f"grid must be rows of one length, e.g. {MARS[:2]!r}, got {grid!r}")
    signs = {(i, j): sign for i, row in enumerate(grid) for j, sign in enumerate(row)}
    for (i, j), sign in signs.items():
        count = list(signs.values()).count(sign)
        if sign not in once + others:
            raise ValueError(f"grid[{i}][{j}] is {sign!r}: use one of {', '.join(once + others)}")
        if sign in once and count > 1:
            raise ValueError(f"grid has {count} cells {sign!r}: give one")
    if missing := set(once) - set(signs.values()):
        raise ValueError(f"grid has no cell {missing.pop()!r}: give one")
    return {cell: sign for cell, sign in signs.items() if sign != WALL}


def _place(cells: dict[Cell, str], sign: str) -> Cell:
    return list(cells)[list(cells.values()).index(sign)]


def _beside(cell: Cell, move: Cell) -> Cell:
    return cell[0] + move[0], cell[1] + move[1]
