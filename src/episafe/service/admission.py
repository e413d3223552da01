"""The door of a service: where it listens, and who is let in before anything of a request is read."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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


@contextmanager
def listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """The sockets of an address, held before anything is opened or begun; an error says what to do where somebody else
    has it."""
    with ExitStack() as held:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            sockets = [_listen(held.enter_context(socket.socket(*one[:2])), one[-1]) for one in found]
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OSError(f"port {port} of {host} is in use: choose another, --port, or stop who has it") from error
            raise OSError(f"port {port} of {host} cannot be had ({error}): choose another --port or --host") from error
        yield sockets


def _listen(made: socket.socket, address: Any) -> socket.socket:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind(address)
    made.listen()
    return made


def answer(sockets: list[socket.socket], app: Any) -> None:
    """Answer until SIGTERM or Ctrl-C."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none"))
    with suppress(KeyboardInterrupt, SystemExit):  # whose 3 would say of a command that something is unsafe
        server.run(sockets)
    if not server.started:
        raise OSError("the server did not start: its log says why")
