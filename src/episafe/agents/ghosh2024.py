"""Ghosh, Zhou and Shroff 2024 as the paper implements it: the same planner, optimistic in the utility too."""

from typing import ClassVar

from episafe.agents.softmax_agent import SoftmaxAgent
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch
from episafe.learning.replanning import Replanning
from episafe.problems.sampled import AnyTask


class Ghosh2024(SoftmaxAgent):
    """The softmax policy of the smallest λ whose *optimistic* utility reaches the threshold. Not episode-wise safe.

    No incumbent, no compensation bonus (C_† = B_† = 0), +C_u in place of −C_u; deploys λ_max when even that fails.

    Differs from the cited paper: λ is found by bisection, where theirs raises it in steps of order K^{-H}; so does the
    paper that we reproduce. Both are heuristic for this algorithm, whose estimate need not be monotone in λ.
    """

    name: ClassVar[str] = "ghosh"
    certified: ClassVar[bool] = False
    pessimistic: ClassVar[bool] = False

    def __init__(
        self,
        task: AnyTask,
        constants: Constants,
        replan: Replanning | None = None,
        *,
        search: LamSearch = Bisection(),
    ) -> None:
        super().__init__(task, constants, replan, search)
