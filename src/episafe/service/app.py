"""A session over HTTP. All state is in the log, so any worker answers any request.

A repeated request changes nothing: a deployment is the same by its `episode_id`, an action by the steps before it, and
a report counts once.
"""

import asyncio
import hmac
import logging
import multiprocessing
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

import episafe
from episafe.core.agent import Agent
from episafe.core.checks import require
from episafe.core.errors import DamagedLog, InvalidEpisode
from episafe.core.types import Document, Episode
from episafe.session.deployment import Deployment
from episafe.session.events import as_value
from episafe.session.session import Session
from episafe.session.session import open as open_session

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as error:
    raise ModuleNotFoundError("the service needs Starlette and uvicorn: pip install 'episafe[serve]'") from error

logger = logging.getLogger("episafe")
KNOWN_IDS = "use an id that POST /deployments returned"

Text = Annotated[str, Meta(max_length=200)]
Reason = Annotated[str, Meta(min_length=1, max_length=2000, description="The reason, which the log records.")]
Numbers = float | list[float]  # one number, or one per limit
Operation = Callable[..., Any]  # (session, deployment of the path, **fields of the request) -> answer


@dataclass(frozen=True)
class Limits:
    """What clients may use of one worker."""

    body: int = 1 << 20  # bytes of a request
    rate: float = 5000.0  # requests per second on average; twice as many in a burst
    at_once: int = 256  # requests under way
    seconds: float = 30.0  # for receiving a body, and for answering
    threads: int = 8  # deployments, and other requests, answered together; they share one fsync


class Step(Struct, forbid_unknown_fields=True):
    """One step that was played: what was observed, done, and received. `overridden`: a person acted."""

    observation: Any
    action: Annotated[int, Meta(ge=0)]
    reward: float | None = None
    utility: Numbers | None = None
    chance: Any = None
    overridden: bool = False


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


class Refused(Exception):
    """A request that is answered by an error."""

    def __init__(self, status: int, error: str, remedy: str, at: str = "", value: object = None) -> None:
        super().__init__(error)
        self.status, self.problem = status, Problem(error, remedy, at, value)


# what the operations do: the keyword arguments are the fields of the request, the annotations its schema


def deploy(session: Session, id: int, *, episode_id: Text = "") -> Deployed:
    """Draw the policy for the next episode, by your name for it; the same again for the same name."""
    try:
        made = session.deploy(episode_id)
    except InvalidEpisode as error:
        raise Refused(409, *_parts(error)) from error
    plan = made.plan
    return Deployed(made.id, made.name, made.weights, plan.bounds.tolist(), plan.source, plan.level, plan.reason)


def act(session: Session, id: int, *, observation: Any, steps: tuple[Step, ...] = ()) -> Acted:
    """Return the action of the deployed policy at an observation; the same again for the same steps."""
    made = _pending(session, id)
    with _client_values():
        _replay(made, steps)
        observation = _plain(observation)
        probabilities = made.probabilities(observation).tolist()
        return Acted(made.act(observation), probabilities)


def report(
    session: Session,
    id: int,
    *,
    steps: tuple[Step, ...] | None = None,
    last_observation: Any = None,
    remaining_utility: Numbers | None = None,
    total_utility: Numbers | None = None,
    total_reward: float = 0.0,
) -> Counted:
    """Report the steps of a deployment, or the totals where a policy acted by itself; the first report counts."""
    if (steps is None) == (total_utility is None):
        remedy = "give the steps, or total_utility and total_reward if the policy acted in your own system"
        raise Refused(422, "a report has either steps or total_utility", remedy)

    def end(made: Deployment) -> None:
        if steps is None:
            episode = Episode.of_totals(total_utility, total_reward, made.component)
        else:
            with _client_values():
                _replay(made, steps)
                made.end(_plain(last_observation), remaining_utility)
                episode = made.episode()
        session.report(id, episode, overridden=made.overridden, encoded=True)

    return _once(session, id, end)


def abandon(session: Session, id: int, *, reason: Reason = "abandoned by a client") -> Counted:
    """State that a deployment will never be reported: it counts as the worst case."""
    return _once(session, id, lambda made: session.abandon(id, reason))


def decide(
    session: Session,
    id: int,
    *,
    what: Literal["promote", "withdraw", "change", "halt", "resume"],
    reason: Reason,
    name: Text = "",
    threshold: Numbers | None = None,
    slack: Numbers | None = None,
) -> Document:
    """Record a decision of a person, and return the status. `name` is for promote and withdraw, limits for change."""
    if what == "change":
        if threshold is None and slack is None:
            raise Refused(422, "nothing changes", "give threshold, slack or both")
        session.change(threshold=threshold, slack=slack, reason=reason)
    elif what == "promote" or what == "withdraw":
        (session.promote if what == "promote" else session.withdraw)(name, reason=reason)
    else:
        (session.halt if what == "halt" else session.resume)(reason=reason)
    return session.status()


def status(session: Session, id: int) -> Document:
    """Return limits, policies, missing reports, alarms, decisions and warnings."""
    return session.status()


def bounds(session: Session, id: int) -> dict[str, dict[str, float]]:
    """Return the proved lower bounds by policy and limit; those of the incumbent are stated."""
    session.refresh()
    names = [one.name for one in session.task.constraints]
    return {name: dict(zip(names, bound.tolist(), strict=True)) for name, bound in session.bounds().items()}


def health(session: Session, id: int) -> dict[str, bool]:
    """Return whether the service runs; no token is needed."""
    return {"alive": True}


def metrics(session: Session, id: int) -> bytes:
    """Return figures of the session for Prometheus, all from the log: every worker gives the same."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest
    except ImportError as error:
        raise ModuleNotFoundError("prometheus_client is missing: pip install 'episafe[metrics]'") from error
    found, registry = session.status(), CollectorRegistry()
    limits = [one["name"] for one in found["limits"]]
    proved = [(one["name"], one["bounds"]) for one in found["policies"] if one["bounds"] is not None]
    figures: list[tuple[str, str, list[str], dict[tuple[str, ...], float]]] = [
        ("alarms", "Number of alarms.", [], {(): len(found["alarms"])}),
        ("halted", "1 if only the incumbent acts.", [], {(): bool(found["halted"])}),
        ("weight", "Weight in the last plan.", ["policy"], {(k,): w for k, w in found["next_weights"].items()}),
        ("limit", "Limit on the total.", ["limit"], {(one["name"],): one["threshold"] for one in found["limits"]}),
        ("bound", "Proved lower bound.", ["policy", "limit"],
         {(name, limit): b for name, bounds in proved for limit, b in zip(limits, bounds, strict=True)}),
    ]  # fmt: skip
    counts = ("deployments", "reports", "abandoned", "overridden", "pending")
    figures += [(name, f"Number of deployments: {name}.", [], {(): found[name]}) for name in counts]
    for name, text, labels, values in figures:
        gauge = Gauge(f"episafe_{name}", text, labels, registry=registry)
        for key, value in values.items():
            (gauge.labels(*key) if key else gauge).set(value)
    return generate_latest(registry)


def openapi_document(*_: object) -> Document:
    """Return the OpenAPI 3.1 document, made from the types of requests and answers."""
    answers = {do: signature(do).return_annotation for do in OPERATIONS.values()}
    types = list({str(one): one for one in (*REQUESTS.values(), *answers.values(), Problem)}.values())
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    named = zip(map(str, types), schemas, strict=True)
    content: dict[str, Document] = {name: {"content": {"application/json": {"schema": one}}} for name, one in named}
    content[str(bytes)] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    paths: dict[str, Document] = {}
    for path, do in OPERATIONS.items():
        done = {"description": "Done.", **content[str(answers[do])]}
        failed = {"description": "What is wrong, and the remedy.", **content[str(Problem)]}
        found: Document = {"summary": do.__doc__, "responses": {"200": done, "default": failed}}
        if "{id}" in path:
            whole = {"type": "integer", "minimum": 0}
            found["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": whole}]
        if do in REQUESTS:
            found["requestBody"] = {"required": True, **content[str(REQUESTS[do])]}
        if do is health:
            found["security"] = []
        paths[path] = {_method(do).lower(): found}
    return {
        "openapi": "3.1.0",
        "info": {"title": "episafe", "version": str(episafe.__version__)},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _request(do: Operation, name: str) -> type[Struct]:
    """Return the type of the requests of an operation: its keyword arguments. A misspelt field is refused."""
    given = [one for one in signature(do).parameters.values() if one.kind is one.KEYWORD_ONLY]
    fields = [(one.name, one.annotation, *([] if one.default is one.empty else [one.default])) for one in given]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)


OPERATIONS: dict[str, Operation] = {
    "/deployments": deploy,
    "/deployments/{id}/act": act,
    "/deployments/{id}/report": report,
    "/deployments/{id}/abandon": abandon,
    "/decisions": decide,
    "/status": status,
    "/bounds": bounds,
    "/health": health,
    "/metrics": metrics,
    "/openapi.json": openapi_document,
}
POSTED = (
    (deploy, "DeployRequest"),
    (act, "ActRequest"),
    (report, "ReportRequest"),
    (abandon, "AbandonRequest"),
    (decide, "Decision"),
)
REQUESTS = {do: _request(do, name) for do, name in POSTED}


def _method(do: Operation) -> str:
    return "POST" if do in REQUESTS else "GET"


def _pending(session: Session, id: int) -> Deployment:
    """Return the handle of a deployment; refuse one that does not exist, and one that has ended."""
    try:
        return session.deployment(id)
    except InvalidEpisode as error:
        if id >= session.state.num_deployed:
            raise Refused(404, str(error), KNOWN_IDS, "id", id) from error
        raise Refused(409, str(error), "deploy again for the next episode") from error


def _once(session: Session, id: int, end: Callable[[Deployment], None]) -> Counted:
    """End a deployment; say so if another request has ended it, before or meanwhile."""
    try:
        end(_pending(session, id))
    except (InvalidEpisode, Refused) as error:
        if id in session.state.pending or id >= session.state.num_deployed:
            raise
        return Counted(False, str(error))
    return Counted(True)


def _replay(made: Deployment, steps: tuple[Step, ...]) -> None:
    """Record steps that were played elsewhere."""
    for step in steps:
        record_action = made.override if step.overridden else made.took
        record_action(step.action, _plain(step.observation))
        made.record(step.reward, step.utility, as_value(_plain(step.chance)))


@contextmanager
def _client_values() -> Iterator[None]:
    """Turn any error of the user's own functions into the answer that the client's values do not fit."""
    try:
        yield
    except (Refused, ValueError, OSError):
        raise
    except Exception as error:
        text = f"the values do not fit the problem ({type(error).__name__}: {error})"
        raise Refused(422, text[:500], "send observations as the environment returns them") from error


def _plain(value: object) -> object:
    """Return a value of numbers, texts and lists; refuse objects, which no state is."""
    if isinstance(value, dict):
        remedy = "send numbers, texts or lists of them"
        raise Refused(422, "an observation or chance is an object", remedy, "", str(value)[:200])
    for one in value if isinstance(value, list) else ():
        _plain(one)
    return value


def _parts(error: Exception) -> tuple[str, str]:
    """Return what is wrong and the remedy, which ends the messages of the library."""
    what, colon, remedy = str(error).rpartition(": ")
    return (what, remedy) if colon else (remedy, "correct the request")


class Service:
    """An ASGI application on one session, which it closes when the server stops. Requests carry the token."""

    def __init__(
        self, session: Session, token: str, limits: Limits | None = None, reopen: Callable[[], Session] | None = None
    ) -> None:
        self.session, self.limits, self._reopen, self._opening = session, limits or Limits(), reopen, threading.Lock()
        text = "the token must have at least 16 ASCII characters and no spaces: make one with "
        text += "python -c 'import secrets; print(secrets.token_urlsafe())'"
        require(re.fullmatch("[!-~]{16,}", token), text, ValueError)
        self._token = token.encode()
        self._left, self._then, self._under_way = 2 * self.limits.rate, time.monotonic(), 0
        self._threads, self._planning = (ThreadPoolExecutor(self.limits.threads, "episafe-http") for _ in range(2))
        routes = [Route(path, self._endpoint(do), methods=[_method(do)]) for path, do in OPERATIONS.items()]
        self.app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={HTTPException: _no_route})

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self._planning.shutdown()
        self._threads.shutdown()
        self.session.close()

    def _endpoint(self, do: Operation) -> Callable[[Request], Awaitable[Response]]:
        decoder = msgspec.json.Decoder(REQUESTS[do]) if do in REQUESTS else None

        async def answer(request: Request) -> Response:
            body = b""
            try:
                if do is health:
                    return _response(200, do(self.session, 0))
                self._admit(request)
                text = request.path_params.get("id", "0")
                if not re.fullmatch("[0-9]{1,15}", text):
                    raise Refused(404, "the deployment is not a whole number", KNOWN_IDS, "id", text[:50])
                asked: Document = {}
                if decoder is not None:
                    body = await self._body(request)
                    asked = msgspec.structs.asdict(decoder.decode(body or b"{}"))
                return _response(200, await self._do(do, int(text), asked))
            except Exception as error:
                return _failure(error, body)

        return answer

    def _admit(self, request: Request) -> None:
        """Refuse a request without the token, and one too many."""
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(shown.encode(), self._token):
            raise Refused(401, "the token is missing or wrong", "send the header Authorization: Bearer TOKEN")
        now, rate = time.monotonic(), self.limits.rate
        self._left, self._then = min(2 * rate, self._left + (now - self._then) * rate), now
        if self._left < 1:
            raise Refused(429, f"more than {rate:g} requests per second", "send it again after a second")
        self._left -= 1
        if self._under_way >= self.limits.at_once:
            remedy = "send it again after a second; until then let the incumbent act"
            raise Refused(503, f"{self._under_way} requests are under way", remedy)

    async def _body(self, request: Request) -> bytes:
        """Return the body; refuse one that is too large, or too slow."""
        most, found = self.limits.body, bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in request.stream():
                    found += part
                    if len(found) > most:
                        raise Refused(413, f"the body has more than {most} bytes", "send less")
        except TimeoutError:
            text = f"the body did not arrive within {self.limits.seconds:g} s"
            raise Refused(408, text, "send it again") from None
        return bytes(found)

    async def _do(self, do: Operation, id: int, asked: Document) -> Any:
        """Return the answer of an operation, made in a thread because it waits for the log.

        Deployments have threads of their own: actions and reports do not wait for the planner.
        """
        self._under_way += 1
        threads = self._planning if do is deploy else self._threads
        doing = asyncio.get_running_loop().run_in_executor(threads, lambda: do(self._current(), id, **asked))
        doing.add_done_callback(self._done)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.shield(doing)
        except TimeoutError:
            if do is deploy and not asked["episode_id"]:
                doing.add_done_callback(self._give_up)  # the client cannot ask for it again
            remedy = "send it again with the same episode_id; until then let the incumbent act"
            raise Refused(503, f"no answer within {self.limits.seconds:g} s", remedy) from None

    def _current(self) -> Session:
        """Return the session; open it again if it is outdated."""
        with self._opening:
            if self.session.is_outdated and self._reopen is not None:
                self.session = self._reopen()
            return self.session

    def _done(self, doing: "asyncio.Future[Any]") -> None:
        self._under_way -= 1
        if not doing.cancelled():
            doing.exception()  # retrieved, also where the client has gone

    def _give_up(self, doing: "asyncio.Future[Deployed]") -> None:
        if not doing.cancelled() and doing.exception() is None and doing.result().id is not None:
            self._threads.submit(self.session.abandon, doing.result().id, "the answer came too late")


def _response(status: int, answer: Any) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, status, media_type="text/plain; version=0.0.4")
    headers = {"retry-after": "1"} if status in (429, 503) else {"www-authenticate": "Bearer"} if status == 401 else {}
    return Response(msgspec.json.encode(answer), status, headers, "application/json")


def _failure(error: Exception, body: bytes) -> Response:
    """Return the answer to a request that failed."""
    if isinstance(error, Refused):
        return _response(error.status, error.problem)
    if isinstance(error, msgspec.ValidationError):
        return _response(422, _invalid(error, body))
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return _response(400, Problem(f"the body is not JSON: {error}"[:300], "send a JSON object"))
    if isinstance(error, OSError):
        return _response(503, Problem(f"the log cannot be written or read: {error}", "send it again later"))
    for kind, status in ((DamagedLog, 500), (ModuleNotFoundError, 501), (ValueError, 422), (TypeError, 422)):
        if isinstance(error, kind):
            return _response(status, Problem(*_parts(error)))
    logger.error("episafe: a request failed", exc_info=error)
    return _response(500, Problem(f"the service failed: {type(error).__name__}", "read the messages of the service"))


def _invalid(error: msgspec.ValidationError, body: bytes) -> Problem:
    """Return what does not fit the schema, with the place and the value there."""
    what, _, place = str(error).partition(" - at `")
    place, shown = place.rstrip("`") or "$", None
    with suppress(msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError):
        value = msgspec.json.decode(body)
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place):
            value = value[name] if name else value[int(index)]
        shown = value if isinstance(value, int | float) else str(value)[:200]
    return Problem(what, "see GET /openapi.json for what the field may be", place, shown)


async def _no_route(request: Request, error: Exception) -> Response:
    known = ", ".join(f"{_method(do)} {path}" for path, do in OPERATIONS.items())
    problem = Problem(f"there is no {request.method[:10]} {request.url.path[:100]}", f"use one of {known}")
    return _response(error.status_code if isinstance(error, HTTPException) else 404, problem)


def serve(
    location: str | Path,
    make_agent: Callable[[], Agent],
    *,
    token: str,
    name: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    timeout: float | None = 10.0,
    workers: int = 1,
) -> None:
    """Serve a session over HTTP until the process is stopped; location, name and timeout are those of `es.open`.

    Each of the `workers` is a process that opens the session with an agent of its own. If there are several,
    `make_agent` is a function of a module. A worker that ends stops all, so that a supervisor can start them again.
    """
    opening = partial(_open, location, make_agent, name, timeout)
    with opening() as session:  # errors of the caller show here
        Service(session, token)
    with socket.create_server((host, port), backlog=1024) as listener:
        if workers == 1:
            return _work(opening, token, listener)
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_work, args=(opening, token, listener)) for _ in range(workers)]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            for one in processes:
                one.start()
            while all(one.is_alive() for one in processes):
                processes[0].join(1.0)
        finally:
            for one in processes:
                one.terminate()
            for one in processes:
                one.join(30)
    raise OSError("a worker ended: read its messages")


def _open(location: str | Path, make_agent: Callable[[], Agent], name: str | None, timeout: float | None) -> Session:
    return open_session(location, make_agent(), name, timeout=timeout)


def _work(opening: Callable[[], Session], token: str, listener: socket.socket) -> None:
    run_server(Service(opening(), token, reopen=opening).app, listener)


def run_server(app: Starlette, listener: socket.socket) -> None:
    """Answer requests on a socket until the process is stopped."""
    patience: Document = {"timeout_keep_alive": 75, "timeout_graceful_shutdown": 10}
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none", **patience)
    uvicorn.Server(config).run([listener])
