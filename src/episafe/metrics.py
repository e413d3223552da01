"""Metrics of a session for Prometheus; needs prometheus_client, `pip install episafe[metrics]`.

    from episafe import metrics
    metrics.register(session)                         # then prometheus_client.start_http_server(9100), or
    print(metrics.text(session))                      # what such a server would answer

What is asked for is computed when it is asked for: nothing is added to plan or learn.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.types import amounts

try:
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("metrics need prometheus_client: pip install episafe[metrics]") from error


class SessionMetrics(Collector):
    """All figures of a session, as a collector of prometheus_client.

    Args:
        session: what `es.open` returned.
        labels: said with every figure, e.g. {"shop": "north"}.
    """

    def __init__(self, session: Any, labels: dict[str, str] | None = None) -> None:
        self._session, self._labels = session, labels or {}

    def describe(self) -> list[Any]:
        """Nothing: figures are named when they are asked for."""
        return []

    def collect(self) -> Iterator[Any]:
        """Counts of the session, the plan in force, and the alarms."""
        status = self._session.status()
        yield self._counter("deployments", "Deployments made", status.started)
        yield self._counter("reports", "Episodes reported", status.reported)
        yield self._counter("abandoned", "Deployments that will never be reported", status.abandoned)
        yield self._gauge("missing", "Deployments without a report", {(): status.num_missing})
        yield self._gauge("stopped", "1 while only what acts by default is deployed", {(): float(bool(status.stopped))})
        yield self._gauge("promoted", "1 for what acts when nothing else may", {(status.promoted,): 1.0}, ["policy"])
        yield from self._of_plan()
        raised: dict[tuple[str, ...], float] = {(alarm["what"],): 1.0 for alarm in status.monitors.get("alarms", [])}
        yield self._gauge("alarm", "1 for every monitor that has raised its alarm", raised, ["monitor"])

    def _of_plan(self) -> Iterator[Any]:
        """Bound and threshold of each constraint, and the incumbent's share, of what was deployed last."""
        task, plan = self._session.task, self._session.last_plan
        if plan is None:
            return
        names = getattr(task, "constraint_names", ("utility",))
        bounds = amounts(plan.utility_bound)
        if plan.source == "safe":
            bounds = amounts(getattr(task, "stated_utility", np.nan))
        limits = amounts(getattr(task, "limits", np.nan))
        yield self._gauge("bound", "What is proved of the plan deployed last", _by_name(names, bounds), ["constraint"])
        yield self._gauge("threshold", "What it must reach", _by_name(names, limits), ["constraint"])
        yield self._gauge("incumbent_share", "The incumbent's probability to act in it", {(): incumbent_share(plan)})

    def _counter(self, name: str, says: str, value: float) -> Any:
        family = CounterMetricFamily(f"episafe_{name}", says, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _gauge(
        self, name: str, says: str, values: dict[tuple[str, ...], float], labels: list[str] | None = None
    ) -> Any:
        family = GaugeMetricFamily(f"episafe_{name}", says, labels=[*self._labels, *(labels or [])])
        for own, value in values.items():
            family.add_metric([*self._labels.values(), *own], value)
        return family


def _by_name(names: Any, values: Any) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in zip(names, values.tolist(), strict=False)}


def incumbent_share(plan: Any) -> float:
    """The probability with which the incumbent acts in a plan."""
    if plan.source == "safe":
        return 1.0
    shares = zip(getattr(plan.policy, "names", ()), plan.policy.weights, strict=False)
    return float(sum(weight for name, weight in shares if name == INCUMBENT))


def register(session: Any, labels: dict[str, str] | None = None, registry: Any = REGISTRY) -> SessionMetrics:
    """Let a registry of prometheus_client ask a session; `registry.unregister` what this returns ends it."""
    made = SessionMetrics(session, labels)
    registry.register(made)
    return made


def text(session: Any, labels: dict[str, str] | None = None) -> str:
    """All figures as Prometheus reads them."""
    registry = CollectorRegistry()
    register(session, labels, registry)
    return generate_latest(registry).decode()
