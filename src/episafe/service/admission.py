"""Who is let in before anything of a request is read, and whether there is a door at all."""

import errno
import socket

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


def require_free(host: str, port: int) -> None:
    """Before anything is opened or begun: say what to do where somebody listens already."""
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise OSError(f"port {port} of {host} is in use: choose another, --port, or stop it") from error
