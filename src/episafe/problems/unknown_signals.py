"""A listed problem whose learner is told neither reward nor utility, and learns both from what episodes bring."""

from typing import Any, ClassVar, Literal

import numpy as np

from episafe.problems.cmdp import LinearCMDP
from episafe.problems.policy import MixturePolicy, TablePolicy
from episafe.problems.sampled_problem import SampledTask
from episafe.problems.task import Constraint
from episafe.types import Array


class UnknownSignals:
    """The same problem, its values as exact as before, with a task that tells no signal.

    Args:
        listed: the problem; one constraint.

    Example:
        >>> import episafe as es
        >>> from episafe.problems.unknown_signals import UnknownSignals
        >>> UnknownSignals(es.make("tabular")).task.unknown
        ('reward', 'utility')
    """

    is_exact: ClassVar[Literal[True]] = True

    def __init__(self, listed: LinearCMDP) -> None:
        told = listed.task
        self.listed, self.origin = listed, {**listed.origin, "told": "no signal"}
        self.task = SampledTask(
            horizon=told.horizon,
            num_actions=told.num_actions,
            dim=told.dim,
            initial_state=told.initial_state,
            constraint=Constraint(None, told.threshold, told.slack),
            safe_policy=told.safe_policy,
            feature_function=None if told.one_hot else told.features,
            reward_function=None,
            time_homogeneous=told.time_homogeneous,
            norm_bound=told.norm_bound,
        )

    def optimal_value(self) -> float:
        """The exact constrained optimum."""
        return self.listed.optimal_value()

    def evaluate(self, policy: Any) -> tuple[float, Any]:
        """Exact V^r and V^u of a policy, or of a mixture."""
        components = getattr(policy, "components", (policy,))
        if components[0] is policy:
            return self.listed.evaluate(self.table(policy))
        tables = [TablePolicy(self.table(component)) for component in components]
        return self.listed.evaluate(MixturePolicy(tables, policy.weights))

    def table(self, policy: Any) -> Array:
        """What a policy does, asked in every state, (H, S, A)."""
        H, S, _ = self.listed.task.reward.shape
        return np.array([[policy.probabilities(h, s) for s in range(S)] for h in range(H)])
