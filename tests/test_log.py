"""One conformance test for the three logs, and what is special to files."""

import errno
import hashlib
import json
import multiprocessing
import os
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from episafe.core.errors import DamagedLog
from episafe.session.events import START_HASH, Abandon, Log, MemoryLog, decode_lines, encode_lines
from episafe.session.file_log import FileLog
from episafe.session.postgres_log import PostgresLog
from postgres_server import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server() as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


@pytest.fixture(params=["memory", "file", "postgres"])
def open_log(request, tmp_path) -> Callable[[], Log]:
    """Open the same log again and again."""
    if request.param == "memory":
        log = MemoryLog()
        return lambda: log
    if request.param == "file":
        return lambda: FileLog(tmp_path / "shop")
    address, name = request.getfixturevalue("postgres").address, str(uuid.uuid4())
    return lambda: PostgresLog(address, name)


def write(log: Log, *reasons: str) -> None:
    """Append events as a session does: read what others appended, then append, then wait until it is durable."""
    with log.lock():
        events = list(decode_lines(log.read()))
        head = events[-1].hash if events else START_HASH
        lines = encode_lines([Abandon(k, reason) for k, reason in enumerate(reasons)], len(events), head)
        log.append(lines, len(events))
    log.sync()


def reasons_in(log: Log) -> list[str]:
    return [event.body.reason for event in decode_lines(log.read())]


def test_what_was_appended_is_read_in_order_by_every_reader(open_log):
    first, second = open_log(), open_log()
    write(first, "a", "b")
    write(second, "c — \x00 ü")
    write(first, "d")
    assert reasons_in(first) == reasons_in(second) == reasons_in(open_log()) == ["a", "b", "c — \x00 ü", "d"]
    assert list(second.read(since=2)) == list(first.read())[2:]
    assert list(first.read(since=4)) == []


def test_the_chain_is_checked_with_ten_lines_and_without_the_library(open_log):
    log = open_log()
    write(log, *"abc")
    previous = "0" * 64
    for number, line in enumerate(log.read()):
        event = json.loads(line)
        assert event["number"] == number and event["previous"] == previous
        previous = hashlib.sha256(line).hexdigest()
    *_, last = decode_lines(log.read())
    assert last.hash == previous


def test_an_error_under_the_lock_appends_nothing_and_releases_it(open_log):
    log = open_log()
    write(log, "a")
    with pytest.raises(ZeroDivisionError), log.lock():
        raise ZeroDivisionError
    write(log, "b")
    assert reasons_in(log) == ["a", "b"]


def test_threads_take_turns(open_log):
    log = open_log()
    threads = [threading.Thread(target=lambda: [write(log, "x") for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.number for event in decode_lines(log.read())] == list(range(40))


def _write_many(opening: tuple[str, ...], count: int) -> None:
    log: Log = FileLog(opening[0]) if len(opening) == 1 else PostgresLog(*opening)
    for _ in range(count):
        write(log, str(os.getpid()))


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_processes_take_turns(kind, tmp_path, request):
    opening = (str(tmp_path),) if kind == "file" else (request.getfixturevalue("postgres").address, str(uuid.uuid4()))
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(opening, 25)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log: Log = FileLog(tmp_path) if kind == "file" else PostgresLog(*opening)
    found = reasons_in(log)
    assert len(found) == 50 and len(set(found)) == 2


def test_a_torn_last_line_is_cut_kept_and_reported(tmp_path):
    write(FileLog(tmp_path), "a", "b")
    whole = (tmp_path / "log.jsonl").read_bytes()
    for torn in (b'{"numb', b"\0" * 5000, b"x" * 10_000):
        (tmp_path / "log.jsonl").write_bytes(whole + torn)
        log = FileLog(tmp_path)
        assert reasons_in(log) == ["a", "b"]  # a reader passes over it
        write(log)
        assert log.torn[0].read_bytes() == torn
        (tmp_path / "log.jsonl").write_bytes(whole)


def test_a_log_that_became_shorter_is_damaged(tmp_path):
    log = FileLog(tmp_path)
    write(log, "a", "b")
    assert len(list(log.read())) == 2
    os.truncate(tmp_path / "log.jsonl", 10)
    with pytest.raises(DamagedLog, match="shorter"):
        list(log.read(since=2))


def test_threads_that_wait_share_one_fsync(tmp_path):
    calls, entered, proceed = [], threading.Event(), threading.Event()

    def slow(file: int) -> None:
        calls.append(file)
        entered.set()
        proceed.wait(10)

    log = FileLog(tmp_path, fsync=slow)
    threads = [threading.Thread(target=write, args=(log, "first"))]
    threads[0].start()
    entered.wait(10)
    threads += [threading.Thread(target=write, args=(log, "later")) for _ in range(6)]
    for thread in threads[1:]:
        thread.start()
    while len(reasons_in(log)) < 7:
        pass
    proceed.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 2  # the first one's, and one for the six that came meanwhile


def test_after_a_failed_fsync_nothing_is_written_until_it_is_reopened(tmp_path):
    def fail(file: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    log = FileLog(tmp_path, fsync=fail)
    for _ in range(2):
        with pytest.raises(OSError, match="reopen the session"):
            write(log, "a")
    assert reasons_in(FileLog(tmp_path)) == ["a"]


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path, monkeypatch):
    log, write_bytes = FileLog(tmp_path), os.write
    write(log, "a")

    def full(file: int, data: bytes) -> int:
        if len(data) > 100:
            return write_bytes(file, data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write(log, "b" * 20)
    monkeypatch.setattr(os, "write", write_bytes)
    write(log, "c")
    assert reasons_in(FileLog(tmp_path)) == ["a", "c"] and not log.torn
    reader, written = FileLog(tmp_path), []

    def full_after_a_line(file: int, data: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(write_bytes(file, data[: data.index(b"\n") + 9]))
        assert reasons_in(reader) == ["a", "c", "d"]  # a reader waits for the end of a line
        return written[0]

    monkeypatch.setattr(os, "write", full_after_a_line)
    with pytest.raises(OSError, match="No space"):
        write(log, "d", "e")
    monkeypatch.setattr(os, "write", write_bytes)
    write(log, "f")
    assert reasons_in(reader) == reasons_in(log) == ["a", "c", "d", "f"]


def test_a_server_that_was_killed_is_connected_to_again(postgres):
    log = PostgresLog(postgres.address, str(uuid.uuid4()))
    write(log, "a")
    postgres.kill()
    with pytest.raises(OSError, match="PostgreSQL"):
        write(log, "b")
    postgres.start()
    write(log, "c")
    assert reasons_in(log) == ["a", "c"]
