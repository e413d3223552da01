"""The loop for a policy that does not learn: nobody needs its episodes, unless they are kept."""

from typing import Any

from episafe.runs.columns import Columns
from episafe.types import FIXED


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: Any) -> "FixedLoop | None":
    """The loop, if no episode is kept."""
    return FixedLoop(world, agent) if trace is None else None


class FixedLoop:
    """A run of `Fixed`: every row is the same."""

    def __init__(self, world: Any, agent: Any) -> None:
        self._agent, self._plan = agent, agent.plan()
        self._values = world.values(self._plan)

    def advance(self, columns: Columns, start: int, stop: int) -> None:
        """Fill the rows of episodes `start` to `stop`."""
        facts, plan = columns.facts, self._plan
        facts.values[start:stop, 0], facts.values[start:stop, 1:] = self._values
        facts.bounds[start:stop, 0], facts.bounds[start:stop, 1:] = plan.lam, plan.utility_bound
        facts.sources[start:stop], facts.plan_ids[start:stop] = FIXED, plan.id

    def finish(self) -> None:
        """The agent has its plan, and nothing was learned."""
        self._agent.adopt(self._plan, self._agent.information_then)
