"""Requests and answers of the service: checked while they are decoded, and the source of the OpenAPI document.

A misspelt field of a request is refused.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Text = Annotated[str, Meta(max_length=200)]
Reason = Annotated[str, Meta(min_length=1, max_length=2000, description="The reason, which the log records.")]
Numbers = float | list[float]  # one number, or one per limit


class Step(Struct, forbid_unknown_fields=True):
    """One step that was played: what was observed, done, and received. `overridden`: a person acted."""

    observation: Any
    action: Annotated[int, Meta(ge=0)]
    reward: float | None = None
    utility: Numbers | None = None
    chance: Any = None
    overridden: bool = False


class DeployRequest(Struct, forbid_unknown_fields=True):
    """Ask for a deployment, by your name for the episode."""

    episode_id: Text = ""


class ActRequest(Struct, forbid_unknown_fields=True):
    """Ask for an action: the steps that were played so far, and what is observed now."""

    observation: Any
    steps: list[Step] = []


class ReportRequest(Struct, forbid_unknown_fields=True):
    """Report an episode: its steps, or the totals where a policy acted by itself."""

    steps: list[Step] | None = None
    last_observation: Any = None
    remaining_utility: Numbers | None = None
    total_utility: Numbers | None = None
    total_reward: float = 0.0


class AbandonRequest(Struct, forbid_unknown_fields=True):
    """State that a deployment will never be reported."""

    reason: Reason = "abandoned by a client"


class Decision(Struct, forbid_unknown_fields=True):
    """A decision by a person. `name` for promote and withdraw; `threshold`, `slack` or both for change."""

    what: Literal["promote", "withdraw", "change", "halt", "resume"]
    reason: Reason
    name: Text = ""
    threshold: Numbers | None = None
    slack: Numbers | None = None


class Acted(Struct):
    """The action of the acting policy, and the probabilities that it was drawn from."""

    action: int
    probabilities: list[float]


class Deployed(Struct):
    """A deployment. `id` is null if it could not be logged: let the incumbent act, and report nothing."""

    id: int | None
    component: str
    weights: dict[str, float]
    bounds: list[float | None]
    source: str
    level: str
    reason: str


class Counted(Struct):
    """Whether a report or an abandonment counted; a deployment ends once."""

    counted: bool
    reason: str = ""


class Problem(Struct, omit_defaults=True):
    """What is wrong, what to do, and for a malformed request the place and the value."""

    error: str
    remedy: str
    at: str = ""
    value: Any = None
