"""OPSE-LCMDP, Algorithm 2 of the paper: optimistic-pessimistic softmax exploration."""

from typing import ClassVar

from episafe.agents.softmax_agent import SoftmaxAgent
from episafe.learning.constants import Constants
from episafe.learning.replanning import Replanning
from episafe.problems.sampled import AnyTask


class OPSE(SoftmaxAgent):
    """Explores with the composite softmax policy of the smallest λ whose pessimistic utility reaches the threshold.

    Algorithm 2 itself is `episafe.learning.kernels.decide`.

    Args:
        task: what the learner is told.
        constants: scales, κ and search limits; their level is the level of every plan.
        replan: when to plan again; None for the rule that goes with the constants, which is Every() for the paper's.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("tabular", seed=0)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
        >>> agent.plan().source  # nothing is known yet
        'safe'
    """

    name: ClassVar[str] = "opse"
    certified: ClassVar[bool] = True
    pessimistic: ClassVar[bool] = True

    def __init__(self, task: AnyTask, constants: Constants, replan: Replanning | None = None) -> None:
        super().__init__(task, constants, replan)
