"""One run at a time has an environment: what `reset` and `step` of two made of it would be an episode of neither."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from episafe.errors import InvalidProblem

_threads: dict[tuple[int, int], int] = {}  # of the runs under way, by what they play
_changed = threading.Condition()


@contextmanager
def one_run(env: Any) -> Iterator[None]:
    """Have an environment alone; a run in another thread is waited for, and one in this thread is an error."""
    played, me = _name(env), threading.get_ident()
    with _changed:
        if _threads.get(played) == me:
            raise InvalidProblem(
                "a run of this environment is under way, and this one would be played in the midst of it: make another "
                "environment for it, or begin it when the first is over"
            )
        _changed.wait_for(lambda: played not in _threads)
        _threads[played] = me
    try:
        yield
    finally:
        with _changed:
            del _threads[played]
            _changed.notify_all()


def refuse_beside_a_run(env: Any) -> None:
    """An error where a run in another thread plays the environment."""
    if _threads and _threads.get(_name(env), threading.get_ident()) != threading.get_ident():
        raise InvalidProblem(
            "a run in another thread plays this environment, and its episode would be broken off: make another "
            "environment for this one, or begin it when the run is over"
        )


def _name(env: Any) -> tuple[int, int]:
    """What an environment is known by: that of its wrappers too, and another one in a process that was forked."""
    return os.getpid(), id(getattr(env, "unwrapped", env))
