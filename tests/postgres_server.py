"""Start a real PostgreSQL server for tests and benchmarks, in a temporary folder, reached through a socket there."""

import contextlib
import glob
import importlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import psycopg


class Server:
    """A server that can be killed and started again."""

    def __init__(self, programs: str, folder: str, user: str | None) -> None:
        self.programs, self.folder, self.user, self.data = programs, folder, user, os.path.join(folder, "data")
        self.address = f"postgresql://episafe@/postgres?host={folder}"
        initdb = [os.path.join(programs, "initdb"), "-D", self.data, "-A", "trust", "-U", "episafe", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=folder, timeout=120)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server; again if it exits, because processes of a killed server may still hold its memory."""
        program = os.path.join(self.programs, "postgres")
        command = [program, "-D", self.data, "-k", self.folder, "-c", "listen_addresses="]
        deadline = time.monotonic() + 60
        with open(os.path.join(self.folder, "server.log"), "ab") as log:
            while time.monotonic() < deadline:
                if self.process is None or self.process.poll() is not None:
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(os.path.join(self.data, "postmaster.pid"))
                    self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user, cwd=self.folder)
                try:
                    psycopg.connect(self.address, connect_timeout=5).close()
                    return
                except psycopg.OperationalError:
                    time.sleep(0.05)
        raise RuntimeError("PostgreSQL did not start")

    def kill(self) -> None:
        """Kill the server as the system would: its clients lose their connections."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)


def find_programs() -> str:
    """Return the folder of initdb and postgres: on the PATH, where Debian has them, or in a wheel; "" if nowhere."""
    folders = [*os.get_exec_path(), *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    with contextlib.suppress(ImportError):
        folders.append(str(importlib.import_module("pgserver").POSTGRES_BIN_PATH))
    wanted = "initdb", "postgres"
    return next((one for one in folders if all(shutil.which(name, path=one) for name in wanted)), "")


@contextlib.contextmanager
def server() -> Iterator[Server | str]:
    """Start a server; gives the reason, a text, where that is impossible: an error if EPISAFE_POSTGRES=required."""
    programs, user, problem = find_programs(), None, ""
    if not programs:
        problem = "PostgreSQL is not installed: install it, or `pip install pgserver`"
    elif os.geteuid() == 0:  # PostgreSQL refuses to run as root
        users = {one.pw_name for one in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in users), None)
        problem = "" if user else "PostgreSQL refuses to run as root, and there is no user postgres or nobody"
    if problem and os.environ.get("EPISAFE_POSTGRES") == "required":
        raise RuntimeError(problem)
    if problem:
        yield problem
        return
    with tempfile.TemporaryDirectory(prefix="episafe-pg-", dir="/tmp") as folder:
        if user is not None:
            shutil.chown(folder, user)
        running = Server(programs, folder, user)
        try:
            yield running
        finally:
            running.stop()
