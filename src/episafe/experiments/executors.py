"""Where jobs run: in processes of this machine, or on a Dask cluster. Both are executors as Python's own."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

DASK = "dask:"
CONNECT_WITHIN = "20s"
TRUST = "Dask sends code: use a network that you trust, or TLS (docs/sweeps.md)"


class Here(Executor):
    """Runs everything in this process, at once: for looking closer, and where a pool is not worth its start."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """The future of a call that was made already."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def processes(workers: int | None) -> Iterator[Executor]:
    """Processes of this machine, None for one a core; Ctrl-C ends them at once."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context, initializer=_begin_worker) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """The workers of the Dask scheduler at an address, e.g. tcp://host:8786; they must have this very episafe."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError("Dask clusters need distributed: pip install episafe[cluster]") from error
    try:
        client = Client(address, timeout=CONNECT_WITHIN)
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address} ({error}): start one, or use --on local") from error
    try:
        yield client.get_executor(pure=False)
    finally:
        client.close(timeout=CONNECT_WITHIN)


@contextmanager
def executor_on(place: str) -> Iterator[Executor | None]:
    """What `--on` names: None for "local", whose processes are started, and replaced if killed, by whoever has jobs."""
    if place == "local":
        yield None
    elif place.startswith(DASK) and place != DASK:
        with cluster(place.removeprefix(DASK)) as pool:
            yield pool
    else:
        raise ValueError(f'--on takes "local" or "dask:ADDRESS", e.g. dask:tcp://127.0.0.1:8786, got {place!r}')


@contextmanager
def pool_on(place: str, workers: int | None) -> Iterator[Executor]:
    """The same, with processes for "local": for work that is begun anew if it is stopped."""
    with executor_on(place) as executor, processes(workers) if executor is None else nullcontext(executor) as pool:
        yield pool


def _begin_worker() -> None:
    """Ctrl-C reaches every process of the terminal, and only the parent acts on it; a worker ends when its parent does.

    A parent that is killed cannot tell its workers. The system closes its end of a pipe, which they wait for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
