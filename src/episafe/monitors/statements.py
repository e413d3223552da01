"""What each monitor tests, what it assumes, and its share of the probability of a false alarm."""

from typing import Literal, NamedTuple

Watched = Literal["range", "incumbent", "threshold", "bound", "spell", "drift", "residual", "coin", "replay"]

ALIKE = (
    "given its plan, an episode is independent of those before it, reported or not, and of which reports have come; "
    "and each report is of its own deployment"
)
IN_RANGE = "total utilities lie in their range, or their noise is σ-sub-Gaussian"


class Statement(NamedTuple):
    """What a monitor says.

    Attributes:
        claim: what it holds the data against.
        assumes: what must be true besides, for its alarm to be false no more often than stated.
        share: of delta; its alarm is false, at any time of an endless run, with probability at most share·delta.
        halts: whether its alarm asks for a halt.
    """

    claim: str
    assumes: str
    share: float
    halts: bool = True

    def says(self, delta: float) -> str:
        """All of it in words."""
        level = f"at most {self.share * delta:.3g}" if self.share else "0"
        return f"{self.claim}; the alarm is false, at any time, with probability {level}, if {self.assumes}"


UTILITIES = f"{ALIKE}, and {IN_RANGE}"
STATEMENTS: dict[Watched, Statement] = {
    "incumbent": Statement("the incumbent has V^u ≥ b + ξ", UTILITIES, 1 / 6),
    "threshold": Statement(
        "policies that passed the check have V^u ≥ b, on average; mixtures over their coin", UTILITIES, 1 / 6
    ),
    "bound": Statement("they have V^u ≥ the bound that each was deployed on, on average", UTILITIES, 1 / 6),
    "spell": Statement("each of them has V^u ≥ b, of late too, whatever was before", UTILITIES, 1 / 12),
    "drift": Statement("the incumbent's V^u does not change", UTILITIES, 1 / 6),
    "residual": Statement("P_h(s'|s,a) = φ(s,a)ᵀμ_h(s') for some μ, of any size", ALIKE, 1 / 6, halts=False),
    "coin": Statement("components are drawn by the weights of their plan", "it is tossed independently", 1 / 12),
    "range": Statement("no episode has a utility outside its range", "the reports are true", 0.0),
    "replay": Statement(
        "every deployed episode is what `move` makes of its trace; else what replays proved is withdrawn, and what "
        "was observed is not",
        "the reports are true",
        0.0,
        halts=False,
    ),
}
