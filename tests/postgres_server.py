"""Start a real PostgreSQL server for tests and benchmarks, in a temporary folder, reached through a socket there."""

import contextlib
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

    def __init__(self, folder: str, user: str | None) -> None:
        self.folder, self.user, self.data = folder, user, os.path.join(folder, "data")
        self.address = f"postgresql://episafe@/postgres?host={folder}"
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", "episafe", "--no-sync")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, user=self.user, cwd=self.folder, timeout=120)

    def start(self) -> None:
        command = ["postgres", "-D", self.data, "-k", self.folder, "-c", "listen_addresses="]
        with open(os.path.join(self.folder, "server.log"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user, cwd=self.folder)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
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
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:  # its children end by themselves; the next server waits for them
            if subprocess.run(["pgrep", "-f", self.data], capture_output=True).returncode:
                break
            time.sleep(0.05)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.data, "postmaster.pid"))

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)


@contextlib.contextmanager
def server() -> Iterator[Server | str]:
    """Start a server; gives the reason, a text, where that is impossible."""
    if not shutil.which("initdb") or not shutil.which("postgres"):
        yield "PostgreSQL is not installed: initdb and postgres are not on the PATH"
        return
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        users = {one.pw_name for one in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in users), None)
        if user is None:
            yield "PostgreSQL refuses to run as root, and there is no user postgres or nobody"
            return
    with tempfile.TemporaryDirectory(prefix="episafe-pg-", dir="/tmp") as folder:
        if user is not None:
            shutil.chown(folder, user)
        running = Server(folder, user)
        try:
            yield running
        finally:
            running.stop()
