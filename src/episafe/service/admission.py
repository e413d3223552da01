"""The door of a service: where it listens, and who is let in before anything of a request is read."""

import errno
import socket
from contextlib import ExitStack, suppress
from typing import Any

import uvicorn
from starlette.requests import Request

HERE = {"localhost", "127.0.0.1", "[::1]"}  # names by which a loopback service is called; others are a page's trick


class Refused(Exception):
    """A request that is not let in: an HTTP status and what to do."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status = status


def require_localhost(request: Request) -> None:
    """Refuse who calls this machine by another name, as a web page would."""
    if request.headers.get("host", "").rsplit(":", 1)[0] not in HERE:
        raise Refused(403, "without a token only localhost is answered")


class Door:
    """Where a service listens, held before anything is opened or begun: a context.

    Args:
        host, port: its address; an error says what to do where somebody else has it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._held = ExitStack()
        try:
            self._sockets = [self._listen(*one) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except OSError as error:
            self._held.close()
            if error.errno == errno.EADDRINUSE:
                raise OSError(f"port {port} of {host} is in use: choose another, --port, or stop who has it") from error
            raise OSError(f"port {port} of {host} cannot be had ({error}): choose another --port or --host") from error

    def _listen(self, family: int, kind: int, _: int, __: str, address: Any) -> socket.socket:
        made = self._held.enter_context(socket.socket(family, kind))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen()
        return made

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def answer(self, app: Any) -> None:
        """Answer until SIGTERM or Ctrl-C."""
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none")
        )
        with suppress(KeyboardInterrupt, SystemExit):  # whose 3 would say of a command that something is unsafe
            server.run(self._sockets)
        if not server.started:
            raise OSError("the server did not start: its log says why")
