"""A log in PostgreSQL: one row per event in one table, for sessions that several machines share.

A writer takes a transaction-level advisory lock, reads what others appended, and inserts, all in one transaction.
"""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg

from episafe.core.errors import DamagedLog

TABLE = """CREATE TABLE IF NOT EXISTS episafe_log (
    session text NOT NULL, number bigint NOT NULL, line text NOT NULL, PRIMARY KEY (session, number))"""
READ = "SELECT number, line FROM episafe_log WHERE session = %s AND number >= %s ORDER BY number"
OPTIONS = "-c lock_timeout=30s"  # the incumbent acts if another process holds the lock for longer
LOCK = "SELECT pg_advisory_xact_lock(%s)"


class PostgresLog:
    """A log in PostgreSQL. A lost connection is made again by the next call.

    Args:
        address: the connection, "postgresql://user@host/database".
        name: the session; one table holds many.
    """

    def __init__(self, address: str, name: str) -> None:
        self._connection: psycopg.Connection | None = None
        self.address, self.name = address, name
        self._key = int.from_bytes(hashlib.sha256(f"episafe:{name}".encode()).digest()[:8], "big", signed=True)
        self._mutex = threading.RLock()
        self._locked = False
        with self._mutex, self._errors():
            connection = self._connect()
            with connection.transaction():
                connection.execute(LOCK, [0])  # two processes that create the table at once would collide
                connection.execute(TABLE)

    def _connect(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.address, autocommit=True, connect_timeout=10, options=OPTIONS)
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the server into OSError, as a file would raise; the next call connects again."""
        try:
            yield
        except psycopg.Error as error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            raise OSError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Return a context in which this process alone writes; leaving it commits."""
        with self._mutex, self._errors():
            self._execute("BEGIN")
            self._connect().execute(LOCK, [self._key])
            self._locked = True
            try:
                yield
            except BaseException:
                with suppress(psycopg.Error):
                    self._connect().execute("ROLLBACK")
                raise
            else:
                self._connect().execute("COMMIT")
            finally:
                self._locked = False

    def _execute(self, command: LiteralString, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """Execute the first command of a transaction; once more if the connection was lost since the last one."""
        connection = self._connect()
        try:
            return connection.execute(command, values or None)
        except psycopg.OperationalError:
            if self._locked or not connection.broken:
                raise
            return self._connect().execute(command, values or None)

    def read(self, since: int = 0) -> Iterator[bytes]:
        """Return the lines from number `since` on."""
        with self._mutex, self._errors():
            rows = self._execute(READ, [self.name, since]).fetchall()
        for expected, (number, line) in enumerate(rows, since):
            if number != expected:
                raise DamagedLog(f"event {expected} of session {self.name!r} is missing: restore a copy of the table")
            yield line.encode()

    def append(self, lines: Sequence[bytes], number: int) -> None:
        """Insert lines as the events from `number` on."""
        if not self._locked:
            raise RuntimeError("append needs the lock: write `with log.lock():` around it")
        rows = [(self.name, k, line.decode()) for k, line in enumerate(lines, number)]
        with self._errors(), self._connect().cursor() as cursor:
            cursor.executemany("INSERT INTO episafe_log VALUES (%s, %s, %s)", rows)

    def sync(self) -> None:
        """Return: leaving the lock committed."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    __del__ = close
