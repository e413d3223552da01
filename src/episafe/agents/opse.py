"""OPSE-LCMDP, Algorithm 2 of the paper: optimistic-pessimistic softmax exploration."""

from typing import ClassVar

from episafe.agents.base import Plan
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
        num_safe_episodes: episodes of the incumbent, logged ones included, before anything else. The paper uses none;
            `bounds.incumbent_phase` many close a gap in its regret proof (docs/theory.md). Safety needs none.

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

    def __init__(
        self, task: AnyTask, constants: Constants, replan: Replanning | None = None, *, num_safe_episodes: int = 0
    ) -> None:
        super().__init__(task, constants, replan)
        if isinstance(num_safe_episodes, bool) or not isinstance(num_safe_episodes, int) or num_safe_episodes < 0:
            raise ValueError(f"num_safe_episodes must be a whole number >= 0, got {num_safe_episodes!r}")
        self.num_safe_episodes = num_safe_episodes

    def _propose(self) -> Plan:
        if self.num_learned < self.num_safe_episodes:
            return self._incumbent(f"one of the first {self.num_safe_episodes} episodes")
        return super()._propose()

    def settings(self) -> dict[str, str | int | float]:
        """Those of a softmax agent, and the incumbent's first episodes."""
        return super().settings() | {"num_safe_episodes": self.num_safe_episodes}
