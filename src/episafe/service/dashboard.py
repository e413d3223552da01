"""A page of a session for people, made from its log alone: a follower reads what other processes write."""

import math
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

import episafe
from episafe.core.errors import DamagedLog
from episafe.core.types import INCUMBENT
from episafe.report.figures import evidence_figure, to_svg
from episafe.service.app import run_server
from episafe.session.audit import read_lines
from episafe.session.events import Deploy, decode_lines, of_numbers
from episafe.session.monitors import REMEDIES
from episafe.session.state import SessionState

POINTS = 400  # of a curve: every other point is dropped beyond that
REFRESH = 5  # seconds between two looks at the log
SHOWN = 8  # policies with a curve
_ORDER = {"stated": 0, "ended": 2}  # the incumbent comes first, policies that act no more come last


class Follower:
    """The state of a session that other processes write, with the history that the figures show. Threads may share it.

    Args:
        location: a folder or a "postgresql://…" address.
        name: the session, on PostgreSQL.
    """

    def __init__(self, location: str | Path, name: str | None = None) -> None:
        self.location, self.name, self.state = location, name, SessionState()
        self.problem = ""  # why the log cannot be read
        self._history: list[tuple[int, float, dict[str, list[float]]]] = []  # deployment, learned weight, bounds
        self._stride, self._lock, self._drawn = 1, threading.Lock(), (-1, [""])
        environment = Environment(
            loader=ChoiceLoader([PackageLoader("episafe.service"), PackageLoader("episafe.report")]),
            autoescape=True,
            undefined=StrictUndefined,
        )
        environment.filters |= {"number": _number, "moment": _moment, "percent": lambda share: f"{share:.0%}"}
        self._template, self._style = (environment.get_template(one) for one in ("dashboard.html", "style.css"))
        self.read()

    def read(self) -> None:
        """Apply the events that were appended since the last call."""
        state = self.state
        for event in decode_lines(read_lines(self.location, self.name, state.number), state.number, state.head):
            state.apply([event])
            if isinstance(event.body, Deploy) and event.body.id % self._stride == 0:
                self._add_to_history(event.body)
        if state.begin is None:
            raise DamagedLog(f"the log of {self.name or self.location} is empty: open the session first")

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
            try:
                self.read()
                self.problem = ""
            except (OSError, ValueError) as error:
                self.problem = str(error)
            status = self.state.status()
            if self._drawn[0] != self.state.number:
                self._drawn = self.state.number, [self._figure(c, one) for c, one in enumerate(status["limits"])]
            return self._template.render(
                style=Markup(self._style.render()),
                version=episafe.__version__,
                title="Session " + (self.name or Path(str(self.location)).resolve().name),
                refresh=refresh,
                problem=self.problem,
                now=datetime.now(UTC).isoformat(),
                quiet=_age(status["last_event"]),
                verdict=_verdict(status, self.state.last_deploy),
                status=status,
                limits=[self._limit(c, one, status) for c, one in enumerate(status["limits"])],
                policies=sorted(status["policies"], key=lambda one: (_ORDER.get(one["state"], 1), -one["deployments"])),
                alarms=[_alarm(one) for one in reversed(status["alarms"])],
                figures=self._drawn[1],
            )

    def _limit(self, c: int, limit: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        """Return what is known of a limit: what is stated, proved and seen."""
        last, recent = self.state.last_deploy, self.state.recent
        proved = None if last is None else last.bounds[c]
        mean = math.fsum(one.utility[c] for one in recent) / len(recent) if recent else None
        stated = None if limit["slack"] is None else limit["threshold"] + limit["slack"]
        return limit | {"stated": stated, "proved": proved, "mean": mean, "count": len(recent)}

    def _figure(self, c: int, limit: dict[str, Any]) -> str:
        """Return the bounds of the policies deployed most, and the weight of learned policies, as SVG."""
        if len(self._history) < 2:
            return ""
        acted = {name: tally.deployments for name, tally in self.state.tallies.items()}
        names = {name for _, _, bounds in self._history for name in bounds}
        curves = {
            name: [(id, bounds[name][c]) for id, _, bounds in self._history if name in bounds]
            for name in sorted(names, key=lambda name: (-acted.get(name, 0), name))[:SHOWN]
        }
        at, weights, bounds = (list(column) for column in zip(*self._history, strict=True))
        for name in curves.keys() - bounds[-1]:
            curves[name].append((curves[name][-1][0] + self._stride, math.nan))  # where its trial ended
        return to_svg(evidence_figure(curves, limit["threshold"], weights, limit["unit"], at=at))


def _verdict(status: dict[str, Any], last: Deploy | None) -> tuple[str, str]:
    """Return whether all is well, and what happens now, in one or two sentences."""
    if status["invalid"]:
        return "bad", f"Nothing is proved any more, so only the incumbent acts. {status['invalid']}"
    if status["halted"]:
        return "bad", f"Halted: only the incumbent acts until a person resumes. Reason: {status['halted']}"
    if last is None:
        return "good", "The session has begun. Nothing was deployed yet."
    weight = 1 - last.weights.get(INCUMBENT, 0.0)
    if weight <= 0:
        return "good", f"Only the incumbent acts. Reason: {last.reason or 'no other policy is allowed yet'}."
    delta = status["agent"].get("delta")
    sure = "Nothing is proved of it."
    if delta and last.level == "theorem":
        sure = f"Every limit is kept with {1 - float(delta):.0%} confidence, if the assumptions below hold."
    return "good", f"A learned policy acts with probability {weight:.0%}. {sure}"


def _alarm(alarm: dict[str, Any]) -> dict[str, Any]:
    """Return an alarm with its remedy apart."""
    remedy = REMEDIES.get(alarm["monitor"], "")
    return alarm | {"message": alarm["message"].removesuffix(remedy).strip(), "remedy": remedy}


def _number(value: float | Sequence[float] | None) -> str:
    """Return a number as people read it: a dash where there is none, all digits of whole numbers."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, Sequence):
        return ", ".join(map(_number, value))
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:,.4g}"


def _moment(time: str) -> str:
    """Return a time of the log to the second; the template says that it is UTC."""
    return time[:19].replace("T", " ")


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


def dashboard_app(follower: Follower, host: str) -> Starlette:
    """Return the application that shows a session; pages of other sites cannot read it through a browser."""

    def page(request: Request) -> HTMLResponse:
        return HTMLResponse(follower.page(REFRESH), headers={"cache-control": "no-store"})

    hosts = ["*"] if host in ("0.0.0.0", "::") else ["127.0.0.1", "localhost", host]
    return Starlette(routes=[Route("/", page)], middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)])


def serve_dashboard(
    location: str | Path, *, name: str | None = None, host: str = "127.0.0.1", port: int = 8001
) -> None:
    """Show a session in the browser, read-only, until the process is stopped."""
    app = dashboard_app(Follower(location, name), host)
    with socket.create_server((host, port)) as listener:
        run_server(app, listener)
