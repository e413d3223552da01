"""Reports in the order of deployments, and none after the oldest deployment that has no report."""

from typing import Generic, TypeVar

Report = TypeVar("Report")


class OrderedReports(Generic[Report]):
    """What was deployed and what came of it: reports are handed on when all deployments before theirs are reported.

    So which reports are used, and in which order, depends on nothing that came of them. Of a deployment that is
    abandoned nothing will ever be known, and of those after it nothing is used.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, Report | None] = {}  # deployments in their order; None while there is no report
        self.ended = False

    def expect(self, deployment: int) -> None:
        """Something was deployed under this number."""
        if not self.ended:
            self.waiting[deployment] = None

    def abandon(self, deployment: int) -> None:
        """This deployment will never be reported: nothing after it is handed on any more."""
        if deployment in self.waiting:
            self.ended = True
            numbers = list(self.waiting)
            for number in numbers[numbers.index(deployment) :]:
                del self.waiting[number]

    def end(self) -> None:
        """Nothing that comes from here on is handed on."""
        self.ended, self.waiting = True, {}

    def take(self, deployment: int, report: Report) -> list[Report]:
        """The reports whose turn has come with this one; a deployment that was never expected has no turn."""
        if deployment not in self.waiting:
            return []
        self.waiting[deployment] = report
        ready: list[Report] = []
        for number, held in list(self.waiting.items()):
            if held is None:
                break
            ready.append(held)
            del self.waiting[number]
        return ready
