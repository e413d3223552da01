"""A page of a session for people, made from its log alone: a follower reads what other processes write."""

import math
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import episafe
from episafe.core.types import INCUMBENT, Document, Unit
from episafe.report.figures import evidence_figure, to_svg, totals_figure
from episafe.report.pages import environment
from episafe.session.audit import read_events
from episafe.session.events import Deploy, of_numbers
from episafe.session.monitors import REMEDIES
from episafe.session.state import SessionState

if TYPE_CHECKING:
    from starlette.applications import Starlette

POINTS = 400  # of a curve: every other point is dropped beyond that
REFRESH = 5  # seconds between two looks at the log
SHOWN = 8  # policies with a curve
_ORDER = {"stated": 0, "ended": 2}  # the incumbent comes first, policies that act no more come last


class Follower:
    """The state of a session that other processes write, and its history for the figures. Threads may share it."""

    def __init__(self, location: str | Path, name: str | None = None) -> None:
        self.location, self.name, self.state = location, name, SessionState()
        self._history: list[tuple[int, float, dict[str, list[float]]]] = []  # deployment, learned weight, bounds
        self._stride, self._lock, self._drawn = 1, threading.Lock(), (-1, [""])
        templates = environment("episafe.service")
        templates.filters |= {
            "number": _number,
            "moment": lambda time: time[:19].replace("T", " "),
            "percent": lambda share: f"{100 * share:.0f}\N{NO-BREAK SPACE}%",
        }
        self._template = templates.get_template("dashboard.html")
        self.read()

    def read(self) -> None:
        """Apply the events that were appended since the last call."""
        for event in read_events(self.location, self.name, self.state.number, self.state.head):
            self.state.apply([event])
            if isinstance(event.body, Deploy) and event.body.id % self._stride == 0:
                self._add_to_history(event.body)

    def _add_to_history(self, body: Deploy) -> None:
        bounds = {name: bound.tolist() for name, bound in self.state.bounds().items()}
        if self.state.certifier is None and set(body.weights) != {INCUMBENT}:
            bounds["deployed plan"] = of_numbers(body.bounds).tolist()  # bounds of each policy need the problem
        self._history.append((body.id, 1 - body.weights.get(INCUMBENT, 0.0), bounds))
        if len(self._history) > POINTS:
            self._history, self._stride = self._history[::2], 2 * self._stride

    def page(self, refresh: int = 0) -> str:
        """Return the page; with `refresh` it updates itself after so many seconds."""
        with self._lock:
            problem = ""
            try:
                self.read()
            except (OSError, ValueError) as error:
                problem = str(error)
            status = self.state.status()
            if self._drawn[0] != self.state.number:
                self._drawn = self.state.number, [self._figure(c, one) for c, one in enumerate(status["limits"])]
                self._spread = [self._totals(c, one) for c, one in enumerate(status["limits"])]
            units, reward = self._units, self.state.task.unit("reward")
            return self._template.render(
                units=units,
                shown=lambda c, total: "–" if total is None else _number(units[c].raw(total)),
                reward=lambda total: "–" if total is None else _number(reward.raw(total)),
                version=episafe.__version__,
                title="Session " + (self.name or Path(str(self.location)).resolve().name),
                refresh=refresh,
                problem=problem,
                now=datetime.now(UTC).isoformat(),
                quiet=_age(status["last_event"]),
                status=status,
                last=self.state.last_deploy,
                recent=self.state.recent,
                policies=sorted(status["policies"], key=lambda one: (_ORDER.get(one["state"], 1), -one["deployments"])),
                remedies=REMEDIES,
                figures=self._drawn[1],
                spread=self._spread,
            )

    @property
    def _units(self) -> list[Unit]:
        """Return the units of the limits, in which the page shows totals."""
        return [self.state.task.unit(one.name) for one in self.state.task.constraints]

    def _figure(self, c: int, limit: Document) -> str:
        """Return the bounds of the policies deployed most, and the weight of learned policies, as SVG."""
        if len(self._history) < 2:
            return ""
        acted = {name: tally[0] for name, tally in self.state.tallies.items()}
        names = {name for _, _, bounds in self._history for name in bounds}
        curves = {
            name: [(id, bounds[name][c]) for id, _, bounds in self._history if name in bounds]
            for name in sorted(names, key=lambda name: (-acted.get(name, 0), name))[:SHOWN]
        }
        at, weights, bounds = (list(column) for column in zip(*self._history, strict=True))
        for name in curves.keys() - bounds[-1]:
            curves[name].append((curves[name][-1][0] + self._stride, math.nan))  # where its trial ended
        return to_svg(evidence_figure(curves, limit["threshold"], weights, self._units[c], at=at))

    def _totals(self, c: int, limit: Document) -> tuple[str, float]:
        """Return the spread of the latest totals as SVG, and the share of them that is below the limit."""
        totals = np.array([one.episode.total_utility[c] for one in self.state.recent])
        if len(totals) < 2:
            return "", 0.0
        svg = to_svg(totals_figure(totals, limit["threshold"], limit["name"], self._units[c]))
        return svg, float(np.mean(totals < limit["threshold"]))


def _number(value: float | None) -> str:
    """Return a number as people read it: a dash where there is none, all digits of whole numbers."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:,.4g}"


def _age(time: str) -> str:
    """Return how long ago a time of the log was, by the clock of this machine."""
    seconds = max((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds(), 0.0)
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}{'' if seconds < 2 * size else 's'} ago"
    return f"{seconds:.0f} s ago"


def session_page(location: str | Path, name: str | None = None) -> str:
    """Return the page of a session as it is now."""
    return Follower(location, name).page()


def dashboard_app(follower: Follower, host: str) -> "Starlette":
    """Return the ASGI application that shows a session; pages of other sites cannot read it through a browser."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    def page(request: Request) -> HTMLResponse:
        return HTMLResponse(follower.page(REFRESH), headers={"cache-control": "no-store"})

    hosts = ["*"] if host in ("0.0.0.0", "::") else ["127.0.0.1", "localhost", host]
    return Starlette(routes=[Route("/", page)], middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)])


def serve_dashboard(
    location: str | Path, *, name: str | None = None, host: str = "127.0.0.1", port: int = 8001
) -> None:
    """Show a session in the browser, read-only, until the process is stopped."""
    from episafe.service.app import run_server

    app = dashboard_app(Follower(location, name), host)
    with socket.create_server((host, port)) as listener:
        run_server(app, listener)
