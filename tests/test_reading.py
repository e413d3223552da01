"""Whatever stands where a file is expected is refused by name, quickly and in little memory."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.deployment.agent_recipe import rebuilt, recipe
from episafe.deployment.session_book import Book
from episafe.logs.tables import read_log
from episafe.storage import sealed_npz
from episafe.storage.regular_files import open_regular, read_regular


def test_pipes_devices_folders_and_gigabytes_are_refused_by_name_in_the_place_of_every_file(tmp_path):
    """Each in the place of each file by each reader, in a process with 400 MiB to spare."""
    script = Path(__file__).with_name("unreadable.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 150
    for thing, file, reader, found, seconds in rows:
        if file.startswith("checkpoint"):
            continue  # of no need: everything is learned again
        assert found.startswith("refused") and file in found, (thing, file, reader, found)
        assert seconds < 4, (thing, file, reader, seconds)
    assert {found for _, file, _, found, _ in rows if file.startswith("checkpoint")} == {"loaded"}


def test_a_file_is_opened_if_it_is_regular_and_not_too_large(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(es.DamagedFile, match="has 5 bytes, more than the 4 that are read: mend it"):
        read_regular(path, 4, "mend it")
    with pytest.raises(es.DamagedFile, match="no regular file, but a folder"):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_regular(tmp_path / "nowhere")


def test_nothing_is_written_over_what_is_no_file(tmp_path):
    """`--html /dev/null` by root would put a file in the place of the device."""
    cmdp = es.make("streaming")
    (tmp_path / "problem.npz").mkdir()
    with pytest.raises(es.DamagedFile, match=r"no regular file.*choose another name"):
        cmdp.save(tmp_path / "problem.npz")
    before = Path("/dev/null").stat()
    with pytest.raises(es.DamagedFile, match="/dev/null is no regular file"):
        cmdp.save("/dev/null")
    assert Path("/dev/null").stat().st_rdev == before.st_rdev


@pytest.mark.parametrize("value", ["[" * 50_000, "[" * 900 + "]" * 900, "[[0.5, 0.9]]", '{"a": 1}', "9" * 5000, "abc"])
def test_a_deep_or_odd_value_of_set_is_refused_in_one_short_line(value):
    done = CliRunner().invoke(app, ["run", "--env", "streaming", "--set", f"fast_rate={value}"])
    assert done.exit_code == 2 and "--set fast_rate" in done.output and "not a number" in done.output
    assert len(done.output) < 300


@pytest.mark.parametrize("state", [np.inf, np.nan, 1e300, -1.0])
def test_a_start_that_is_no_state_is_a_damaged_file(tmp_path, state):
    cmdp = es.make("streaming")
    cmdp.save(tmp_path / "problem.npz")
    arrays = sealed_npz.read(tmp_path / "problem.npz") | {"initial_state": np.array(state)}
    with (tmp_path / "problem.npz").open("w+b") as file:
        sealed_npz.write(file, arrays, compress=True)
    with pytest.raises(es.DamagedFile, match=r"problem\.npz is not a saved problem"):
        es.LinearCMDP.load(tmp_path / "problem.npz")
    text, told = recipe(es.Fixed(cmdp.task, "incumbent"))
    with pytest.raises(es.DamagedFile, match="does not say how to build its agent"):
        rebuilt(text, told | {"initial_state": np.array(state)}, None)


@pytest.mark.parametrize("text", ["[" * 50_000, "[]", "null", '{"agent": "Fixed", "policy": {"is": "nothing"}}'])
def test_a_recipe_that_is_none_is_a_damaged_file(text):
    with pytest.raises(es.DamagedFile, match="does not say how to build its agent"):
        rebuilt(text, {}, es.make("streaming").task)


def test_a_book_that_is_none_is_a_damaged_file():
    with pytest.raises(es.DamagedFile, match="the book of the session"):
        Book("").restore({"book": np.frombuffer(b"[" * 50_000, np.uint8)})


def test_parquet_logs_may_label_episodes_by_texts_and_have_other_columns(tmp_path):
    task = es.make("streaming").task
    columns = {"episode": ["a"] * 4 + ["b"] * 4, "step": [*range(4)] * 2, "action": [0] * 8, "state": [0] * 8}
    pq.write_table(pa.table({**columns, "next_state": [0] * 8, "photo": [b"x"] * 8}), tmp_path / "log.parquet")
    assert len(list(read_log(tmp_path / "log.parquet", task))) == 2
    pq.write_table(pa.table({**columns, "episodes": [0] * 8}).drop(["episode"]), tmp_path / "log.parquet")
    with pytest.raises(es.DamagedFile, match="no column 'episode': add it; there are step, action, state, episodes"):
        list(read_log(tmp_path / "log.parquet", task))
    long = {**columns, "episode": ["a" * 2000] * 8, "next_state": [0] * 8}
    pq.write_table(pa.table(long), tmp_path / "log.parquet", row_group_size=3)
    with pytest.raises(es.DamagedFile, match="column episode has a text of 2000 bytes"):
        list(read_log(tmp_path / "log.parquet", task))


def test_a_list_of_numbers_is_a_value_of_set():
    done = CliRunner().invoke(
        app, ["run", "--env", "streaming", "--agent", "incumbent", "--episodes", "5", "--set", "fast_rate=[0.5, 0.6]"]
    )
    assert done.exit_code == 0, done.output
