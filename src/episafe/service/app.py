"""The handlers behind HTTP: who may ask, how much at once, and what is answered when something goes wrong."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from episafe.errors import InvalidEpisode, NotKept
from episafe.service.admission import Refused, require_localhost
from episafe.service.handlers import Answer, Handlers, Values
from episafe.service.openapi import OPERATIONS, description, page
from episafe.service.request_limits import BORNE, Bucket, RequestLimits, read_json

STATUS: dict[type[Exception], int] = {
    InvalidEpisode: 409,
    NotKept: 503,
    ValueError: 400,
    TypeError: 400,
}
IN_LINE = 16  # times as many as are answered at once may wait with an episode that has begun
log = logging.getLogger("episafe.service")
Ask = Callable[[Values], Answer]


class Service:
    """An ASGI application on handlers.

    Args:
        handlers: what answers.
        token: what every request must show, as `Authorization: Bearer TOKEN`; "" on the loopback, where only this
            machine asks.
        limits: what is borne.
    """

    def __init__(self, handlers: Handlers, token: str = "", limits: RequestLimits = BORNE) -> None:
        self.handlers, self._token, self.limits = handlers, token.encode(), limits
        self._bucket, self._under_way = Bucket(limits.per_second), 0
        self._threads = ThreadPoolExecutor(min(limits.at_once, 32), thread_name_prefix="episafe")
        routes = [Route(f"/{name}", self._endpoint(name), methods=[how.method]) for name, how in OPERATIONS.items()]
        routes += [
            Route("/metrics", self._open(self._metrics)),
            Route("/openapi.json", self._open(lambda: JSONResponse(description()))),
            Route("/", self._open(lambda: HTMLResponse(page()))),
        ]
        self.app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={404: _nowhere, 405: _nowhere})

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> Any:
        yield
        self._threads.shutdown(wait=True)
        self.handlers.session.close()
        log.info("the session is closed")

    def _endpoint(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        ask: Ask = getattr(self.handlers, name)
        fallback = {"plan": self._plan_anyway, "act": self._act_anyway}.get(name)

        async def answer(request: Request) -> Response:
            try:
                self._let_in(request)
                asked, began = read_json(await self._body(request), self.limits.depth), self.handlers.num_answers
                full = self._under_way >= self.limits.at_once or not self._bucket.take()
                if full and not (name == "act" and self._may_wait(asked)):
                    if fallback is None:
                        raise Refused(503, "too many requests at once: ask again in a second")
                    said = await fallback(asked, "the service is overloaded")
                else:
                    said = await self._ask(ask, asked, fallback)
                return JSONResponse(said if name != "plan" else self._settled(asked, said, began))
            except Refused as error:
                headers = {"retry-after": "1"} if error.status == 503 else {}
                return JSONResponse({"error": str(error)}, error.status, headers)
            except Exception as error:
                return _failed(error)

        return answer

    def _may_wait(self, asked: Values) -> bool:
        """Whether an `act` is in the middle of an episode, and the line is not too long.

        There the incumbent would go on with what somebody else has begun: nothing is proved of such an episode.
        """
        begun = asked.get("deployment") is not None and asked.get("step") != 0
        return begun and self._under_way < IN_LINE * self.limits.at_once

    async def _ask(self, ask: Ask, asked: Values, fallback: Any) -> Answer:
        """What the handlers say, in a thread, since it waits for the disk; the incumbent where that takes too long."""
        self._under_way += 1
        made: Future[Answer] = self._threads.submit(ask, asked)
        waiting = asyncio.wrap_future(made)
        waiting.add_done_callback(self._leave)
        await asyncio.wait([waiting], timeout=None if fallback is None else self.limits.seconds)
        if waiting.done():
            return waiting.result()
        made.add_done_callback(self._give_up)
        return dict(await fallback(asked, f"no answer within {self.limits.seconds:g} s"))

    def _settled(self, asked: Values, said: Answer, began: int) -> Answer:
        """What a plan is answered; where that is the incumbent, nobody else acts in what was drawn for it."""
        answer = self.handlers.note_answer(asked, said, began)
        if answer is not said:
            asyncio.get_running_loop().run_in_executor(None, self.handlers.give_up, said["deployment"])
        return answer

    def _leave(self, waiting: asyncio.Future[Answer]) -> None:
        self._under_way -= 1
        waiting.exception()  # which nobody may be waiting for any more

    def _give_up(self, made: Future[Answer]) -> None:
        """A plan that came too late was answered by the incumbent: it must not count for whoever was drawn."""
        if made.exception() is None:
            self.handlers.give_up(made.result().get("deployment"))

    async def _plan_anyway(self, asked: Values, reason: str) -> Answer:
        log.warning("incumbent: %s", reason)
        before = self.handlers.made_before(asked)  # and not what is made by that name until this is given up
        if before is not None:  # who was drawn for it does not act; nobody waits for the disk
            asyncio.get_running_loop().run_in_executor(None, self.handlers.give_up, before)
        return self.handlers.refuse(asked, reason)

    async def _act_anyway(self, asked: Values, reason: str) -> Answer:
        """The incumbent's action for one that came too late, or was too much; its deployment is given up."""
        log.warning("incumbent: %s", reason)
        asking = asyncio.get_running_loop().run_in_executor(None, self._incumbent_acts, asked)
        return (await asking) | {"reason": reason}

    def _incumbent_acts(self, asked: Values) -> Answer:
        deployment = asked.get("deployment")
        self.handlers.give_up(deployment if isinstance(deployment, int) else None)
        return self.handlers.act({**asked, "deployment": None})

    def _open(self, made: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        """A page that only those may read who may ask."""

        async def answer(request: Request) -> Response:
            try:
                self._let_in(request)
                return made()
            except Refused as error:
                return JSONResponse({"error": str(error)}, error.status)

        return answer

    def _metrics(self) -> Response:
        """All that `episafe.metrics` knows, where prometheus_client is installed; else the counts alone."""
        with suppress(ModuleNotFoundError):
            from episafe import metrics

            return PlainTextResponse(metrics.text(self.handlers.session))
        status = self.handlers.session.status()
        lines = {
            "episafe_deployments_total": status.started,
            "episafe_reports_total": status.reported,
            "episafe_missing": status.num_missing,
            "episafe_abandoned_total": status.abandoned,
            "episafe_stopped": int(bool(status.stopped)),
        }
        return PlainTextResponse("".join(f"{name} {value}\n" for name, value in lines.items()))

    def _let_in(self, request: Request) -> None:
        """Refuse who shows no token; on the loopback, who calls this machine by another name, as a web page would."""
        if self._token:
            scheme, _, shown = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(shown.encode(), self._token):
                raise Refused(401, "show the token: Authorization: Bearer …")
        else:
            require_localhost(request)
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if request.method == "POST" and kind != "application/json":
            raise Refused(415, "send application/json")

    async def _body(self, request: Request) -> bytes:
        """The body, as long as it is not too large."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self.limits.body:
                raise Refused(413, f"a request has at most {self.limits.body} bytes")
        return body


def _nowhere(request: Request, error: Any) -> Response:
    """No such page, or asked the other way."""
    known = ", ".join(f"{how.method} /{name}" for name, how in OPERATIONS.items())
    said = f"there is no {request.method} {request.url.path[:100]}: ask one of {known}"
    return JSONResponse({"error": said}, error.status_code)


def _failed(error: Exception) -> Response:
    """What went wrong, as an answer; what nobody foresaw is logged, and not shown."""
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            return JSONResponse({"error": str(error)[:500]}, status)
    log.exception("a request failed")
    return JSONResponse({"error": "the service failed: see its log"}, 500)
