"""`episafe dashboard`: a page on the loopback that follows a journal which somebody else writes. It only reads."""

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from episafe.deployment.follower import Follower
from episafe.errors import DamagedFile
from episafe.reports import dashboard_page
from episafe.service.admission import Refused, answer, listening, require_localhost

AT_MOST = 1.5  # seconds that one request reads on, 10^5 episodes or more: the page of a longer journal fills up
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "x-frame-options": "DENY"}


class Dashboard:
    """An ASGI application on a folder with a journal.

    Args:
        folder: of the journal; it may be in use.
        seconds: after which an open page asks again.
    """

    def __init__(self, folder: Path, seconds: float = 2.0) -> None:
        self._folder, self._seconds, self._lock = folder, seconds, threading.Lock()
        self._follower, self._version, self._made = Follower(folder), 0, ("", "")
        self.app = Starlette(
            routes=[
                Route("/", self._answer(self._page)),
                Route("/inside", self._answer(self._inside)),
                Route("/figures.json", self._answer(self._figures)),
            ]
        )

    def _answer(self, made: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                require_localhost(request)
                return await run_in_threadpool(self._read_and, made, request)
            except Refused as error:
                return JSONResponse({"error": str(error)}, error.status)
            except (DamagedFile, OSError) as error:
                return JSONResponse({"error": str(error)}, 503, HEADERS)

        return answer

    def _read_and(self, made: Callable[[Request], Response], request: Request) -> Response:
        """Read what is new, once for all who ask at the same time, and answer."""
        with self._lock:
            try:
                self._version += self._follower.read_on(AT_MOST)
            except (DamagedFile, OSError):
                self._follower = Follower(self._folder)  # repaired, restored or begun anew: from its beginning
                self._version += 1 + self._follower.read_on(AT_MOST)
            return made(request)

    def _page(self, _: Request) -> Response:
        return HTMLResponse(dashboard_page.page(self._follower, self._seconds), headers=HEADERS)

    def _inside(self, request: Request) -> Response:
        tag = f'"{self._version}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag, **HEADERS})
        if self._made[0] != tag:
            self._made = tag, dashboard_page.inside(self._follower)
        return HTMLResponse(self._made[1], headers={"etag": tag, **HEADERS})

    def _figures(self, _: Request) -> Response:
        return JSONResponse(dashboard_page.figures(self._follower), headers=HEADERS)


def watch(folder: Path, port: int = 8766, seconds: float = 2.0) -> None:
    """Answer on the loopback until Ctrl-C."""
    with listening("127.0.0.1", port) as sockets:
        answer(sockets, Dashboard(folder, seconds).app)
