"""`episafe serve`: a folder's session behind HTTP, until somebody stops it."""

import ipaddress
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from episafe.deployment.open_session import open as open_session
from episafe.deployment.session import Sync
from episafe.errors import InvalidProblem
from episafe.service.request_limits import BORNE, RequestLimits
from episafe.storage.regular_files import read_regular

TOKEN = "EPISAFE_TOKEN"  # the environment's, where no file is named
SHORTEST = 16  # characters of a token
LOG = logging.getLogger("episafe.service")
EXTRA = "the service needs its extra: pip install 'episafe[serve]'"


def serve(
    folder: Path,
    agent: Any,
    host: str = "127.0.0.1",
    port: int = 8765,
    token_file: Path | None = None,
    sync: Sync = "each",
    false_alarm: float = 0.01,
    limits: RequestLimits = BORNE,
    incumbent_version: str = "",
) -> None:
    """Open the session of a folder and answer for it until SIGTERM or Ctrl-C; then close it in good order.

    Args:
        folder: of the journal, as for `es.open`.
        agent: new, or a function of nothing that makes one.
        host: to listen at. Other than the loopback asks for a token.
        port: to listen at.
        token_file: holds the token; default: the variable EPISAFE_TOKEN, if there is one.
        sync: as for `es.open`.
        false_alarm: as for `es.open`.
        limits: what is borne.
        incumbent_version: as for `es.open`.
    """
    try:
        from episafe.service import admission
        from episafe.service.app import Service
        from episafe.service.handlers import Handlers
    except ModuleNotFoundError as error:
        raise ValueError(f"{EXTRA} ({error})") from error
    token = _token(host, token_file)
    with admission.listening(host, port) as sockets:
        built = agent if hasattr(agent, "incumbent_plan") and not isinstance(agent, type) else _made(agent)
        said = {"false_alarm": false_alarm, "incumbent_version": incumbent_version}
        with open_session(folder, built, sync=sync, **said) as session:  # type: ignore[arg-type]
            with suppress(Exception):  # whatever it is, the first deployment says it
                session.warm_up()
            LOG.info("%s is served at http://%s:%d/ (Ctrl-C closes it in good order)", folder, host, port)
            admission.answer(sockets, Service(Handlers(session), token, limits).app)


def _made(agent: Any) -> Any:
    """What a function of the user makes, which must be an agent."""
    built = agent() if callable(agent) else agent
    if not hasattr(built, "incumbent_plan"):
        raise InvalidProblem(
            f"the agent is a {type(built).__name__}: name a function that makes an agent, e.g. "
            "def agent(): return es.OPSE(problem.task)"
        )
    return built


def _token(host: str, token_file: Path | None) -> str:
    """What requests must show; "" on the loopback where nobody asks for one."""
    token = read_regular(token_file, 4096).decode().strip() if token_file else os.environ.get(TOKEN, "").strip()
    if token and len(token) < SHORTEST:
        raise InvalidProblem(
            f"the token must have at least {SHORTEST} characters: make one with `openssl rand -hex 32`"
        )
    if not token and not _is_loopback(host):
        raise InvalidProblem(
            f"{host} is not the loopback: whoever reaches it could deploy and report. Give --token-file FILE or the "
            f"variable {TOKEN}, and put a proxy with TLS before it"
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
