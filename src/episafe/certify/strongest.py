"""The strongest certifier that a problem allows."""

from episafe.certify.base import Certifier
from episafe.certify.hindsight import Hindsight
from episafe.certify.observation import Observation
from episafe.problems.sampled_problem import AnyTask


def strongest(task: AnyTask, delta: float = 0.05) -> Certifier:
    """`Hindsight` where chance is exogenous and seen, else `Observation`: both at level theorem, without features."""
    return Hindsight(delta) if task.is_exogenous else Observation(delta)
