"""The loop for a policy that does not learn: nobody needs its episodes, unless they are kept."""

from typing import Any

from episafe.runs.record import Columns


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
        columns.note(slice(start, stop), self._plan, self._values, (None, self._plan.policy))

    def finish(self) -> None:
        """The agent has its plan, and nothing was learned."""
        self._agent.adopt(self._plan, self._agent.information_then)
