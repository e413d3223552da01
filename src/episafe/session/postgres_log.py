"""A log in PostgreSQL: one row per event in one table, for sessions that several machines share.

A writer takes a transaction-level advisory lock, reads what others appended, and inserts, in one transaction that takes
two round trips: one takes the lock and reads, the other inserts and commits.
"""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from episafe.session.events import Log

TABLE = """CREATE TABLE IF NOT EXISTS episafe_log (
    session text NOT NULL, number bigint NOT NULL, line text NOT NULL, PRIMARY KEY (session, number))"""
OPTIONS = "-c lock_timeout=30s"  # the incumbent acts if another process holds the lock for longer
LOCK = "SELECT pg_advisory_xact_lock(%s);"
READ = "SELECT number, line FROM episafe_log WHERE session = %s AND number >= %s ORDER BY number"


class PostgresLog(Log):
    """A log in PostgreSQL, durable when the lock is left. A lost connection is made again by the next call.

    Args:
        address: the connection, "postgresql://user@host/database".
        name: the session; one table holds many.
    """

    def __init__(self, address: str, name: str) -> None:
        self._connection: psycopg.Connection | None = None
        self.address, self.name = address, name
        self._key = int.from_bytes(hashlib.sha256(f"episafe:{name}".encode()).digest()[:8], "big", signed=True)
        self._mutex = threading.RLock()
        self._next = 0  # number of the first event that was neither read nor appended here
        self._read: tuple[int, list[tuple[int, str]]] | None = None  # under the lock: what was read with it, from where
        self._added: list[tuple[int, str]] = []  # under the lock: what will be inserted
        with self._errors():  # under a lock, since two processes that create the table at once would collide
            self._execute("BEGIN;" + LOCK + TABLE + "; COMMIT", 0)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the server into OSError, as a file would raise; the next call connects again."""
        try:
            with self._mutex:
                yield
        except psycopg.Error as error:
            self.close()
            raise OSError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error

    def _execute(self, commands: str, *values: object) -> list[tuple[int, str]]:
        """Execute commands in one round trip and return the rows of the last; connect if there is no connection."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self.address, autocommit=True, connect_timeout=10, options=OPTIONS, cursor_factory=psycopg.ClientCursor
            )
        cursor = self._connection.execute(commands.encode(), values)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    def _begin(self, commands: str, *values: object) -> list[tuple[int, str]]:
        """Execute commands outside a transaction: once more if the connection was lost since the last ones."""
        try:
            return self._execute(commands, *values)
        except psycopg.OperationalError:
            if self._connection is None or not self._connection.broken:
                raise
            return self._execute(commands, *values)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Return a context in which this process alone writes; leaving it commits."""
        with self._errors():
            since = self._next
            self._read = since, self._begin("BEGIN;" + LOCK + READ, self._key, self.name, since)
            try:
                yield
                values = [value for number, line in self._added for value in (self.name, number, line)]
                rows = ",".join(["(%s, %s, %s)"] * len(self._added))
                self._execute(f"INSERT INTO episafe_log VALUES {rows}; COMMIT" if rows else "COMMIT", *values)
            except BaseException:
                self.close()  # the server rolls back
                raise
            finally:
                self._read, self._added = None, []

    def read(self, since: int = 0) -> Iterator[bytes]:
        """Return the lines from number `since` on."""
        with self._errors():
            if self._read is not None and self._read[0] == since:
                rows = self._read[1] + self._added
            else:
                execute = self._begin if self._read is None else self._execute
                rows = execute(READ, self.name, since) + [one for one in self._added if one[0] >= since]
            self._next = since + len(rows)
        return iter([line.encode() for _, line in rows])

    def append(self, lines: Sequence[bytes], number: int) -> None:
        """Let the lines be inserted, as the events from `number` on, when the lock is left."""
        if self._read is None:
            raise RuntimeError("append needs the lock: write `with log.lock():` around it")
        self._added += [(k, line.decode()) for k, line in enumerate(lines, number)]
        self._next = number + len(lines)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    __del__ = close
