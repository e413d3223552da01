"""Files: what was written comes back; what is damaged or hostile never loads, at bounded cost."""

import json
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import episafe as es
import hostile
from episafe.storage import checkpoint, sealed_npz
from episafe.storage.checkpoint import DamagedCheckpoint
from stored import same_state

PLAIN = st.sampled_from([np.float64, np.float32, np.int64, np.int8, np.uint8, np.bool_, np.dtype("<U5")])
ARRAYS = PLAIN.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))


def a_state():
    cmdp = es.make("tabular", seed=2)
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"), es.Doubling(0.3))
    es.run(cmdp, agent, 200)
    return agent.state()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=st.dictionaries(st.from_regex(r"[a-z]{1,5}(\.[a-z0-9_]{1,5}){0,2}", fullmatch=True), ARRAYS, max_size=6))
@pytest.mark.parametrize("compress", [False, True])
def test_plain_arrays_come_back_as_they_were(compress, state, tmp_path):
    state = {name: array for name, array in state.items() if name != sealed_npz.FORMAT_NAME}
    with (tmp_path / "file").open("w+b") as file:
        sealed_npz.write(file, state, compress=compress)
    same_state(sealed_npz.read(tmp_path / "file"), state)
    with np.load(tmp_path / "file") as loaded:  # any numpy reads it
        assert set(loaded.files) == {*state, sealed_npz.FORMAT_NAME}


def test_what_unpacks_too_far_is_stored_as_it_is(tmp_path, monkeypatch):
    """Zeros that deflate makes a thousandth of: a bomb by all that a reader can see."""
    monkeypatch.setattr(sealed_npz, "UNPACKED_FREELY", 1 << 20)
    for path, largest in ((tmp_path / "small", 10_000), (tmp_path / "large", 300_000)):
        with path.open("w+b") as file:
            sealed_npz.write(file, {"a": np.zeros(largest)}, compress=True)
        assert sealed_npz.read(path)["a"].shape == (largest,)
    assert (tmp_path / "small").stat().st_size < 10_000 < 8 * 300_000 < (tmp_path / "large").stat().st_size


@pytest.mark.parametrize("value", [np.array([None]), np.zeros(2, complex), np.array([b"x"]), np.zeros(1, "f8,i8")])
def test_only_plain_arrays_are_written(value, tmp_path):
    with (tmp_path / "file").open("w+b") as file, pytest.raises(ValueError, match="plain numbers and text"):
        sealed_npz.write(file, {"a": value}, compress=False)


def test_two_generations_take_turns(tmp_path):
    written = [checkpoint.write(tmp_path, {"a": np.array(i)}, {"i": i}).name for i in range(5)]
    assert written == [checkpoint.NAMES[i % 2] for i in range(5)]
    state, notes = checkpoint.read(tmp_path)
    assert (int(state["a"]), notes) == (4, {"i": 4})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(checkpoint.NAMES)


def test_no_checkpoint_is_told_from_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no checkpoint"):
        checkpoint.read(tmp_path)
    checkpoint.write(tmp_path, {"a": np.zeros(3)}, {})
    (tmp_path / checkpoint.NAMES[0]).write_bytes(b"")
    with pytest.raises(es.DamagedFile, match="no whole checkpoint"):
        checkpoint.read(tmp_path)


def test_no_damage_loads_and_the_previous_generation_takes_over(tmp_path):
    state = a_state()
    checkpoint.write(tmp_path, state, {"i": 0})
    newest = checkpoint.write(tmp_path, state, {"i": 1})
    raw, tried = newest.read_bytes(), 0
    for damaged in hostile.damages(raw, np.random.default_rng(7)):
        newest.write_bytes(damaged)
        with pytest.raises(es.DamagedFile):
            sealed_npz.read(newest)
        if tried % 4 == 0:
            with pytest.warns(DamagedCheckpoint, match=newest.name):
                found, notes = checkpoint.read(tmp_path)
            assert notes == {"i": 0}
        tried += 1
    assert tried > 700
    same_state(found, state)


def test_a_damaged_predecessor_is_of_no_interest(tmp_path):
    older, _ = (checkpoint.write(tmp_path, {"a": np.arange(9)}, {"i": i}) for i in range(2))
    raw = bytearray(older.read_bytes())
    raw[-10] ^= 1  # in the seal: its number can still be read
    older.write_bytes(bytes(raw))
    assert checkpoint.read(tmp_path)[1] == {"i": 1}


def test_a_write_that_fails_leaves_both_generations(tmp_path):
    for i in range(2):
        checkpoint.write(tmp_path, {"a": np.array(i)}, {"i": i})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="plain"):
        checkpoint.write(tmp_path, {"a": np.array([object()])}, {})
    with pytest.raises(TypeError):
        checkpoint.write(tmp_path, {"a": np.array(3)}, {"i": object()})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_leaves_both_generations(tmp_path):
    for i in range(2):
        checkpoint.write(tmp_path, {"a": np.array(i)}, {"i": i})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, allowed[1]))
    try:
        with pytest.raises(OSError, match="large"):
            checkpoint.write(tmp_path, {"a": np.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_pipes_folders_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(es.DamagedFile, match="no regular file"):
            sealed_npz.read(path)


def test_hostile_files_are_refused_in_under_a_second_in_little_memory_and_run_nothing(tmp_path):
    """Every hostile file by every reader, in a process whose memory is limited."""
    script = Path(__file__).with_name("hostile.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 200
    for kind, reader, found, seconds, ran in rows:
        assert found.startswith("refused") and not ran, (kind, reader, found)
        assert seconds < 1, (kind, reader, seconds)


def test_a_record_of_other_columns_is_refused(tmp_path):
    cmdp = es.make("tabular")
    record = es.run(cmdp, es.Fixed(cmdp.task, "uniform"), 5)
    record.save(tmp_path)
    assert es.Record.load(tmp_path).regret()[-1] == record.regret()[-1]
    good = {name: getattr(record, name) for name in record.columns()}
    for change in (
        {"evil": np.zeros(5)},
        {"lams": np.zeros((5, 2))},
        {"lams": np.array(["a"] * 5)},
        {"plan_ids": np.zeros(5)},
        {"sources": np.zeros(5)},
        {"reward_values": np.zeros(4)},
        {"reward_values": np.array(0.0)},
    ):
        with (tmp_path / "episodes.npz").open("w+b") as file:
            notes = np.array(json.dumps({"optimum": 1.0, "threshold": 0.5}))
            sealed_npz.write(file, {**good, **change, "notes": notes}, compress=True)
        with pytest.raises(es.DamagedFile):
            es.Record.load(tmp_path)


def test_the_same_state_makes_the_same_bytes(tmp_path):
    state = a_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (checkpoint.write(tmp_path / str(i), state, {}).read_bytes() for i in range(2))
    assert first == second


def test_a_problem_with_wrong_numbers_is_a_damaged_file(tmp_path):
    cmdp = es.make("linear", num_states=6)
    cmdp.save(tmp_path / "problem.npz")
    good = sealed_npz.read(tmp_path / "problem.npz")
    assert es.LinearCMDP.load(tmp_path / "problem.npz").optimal_value() == cmdp.optimal_value()
    for change in (
        {"P": np.full_like(good["P"], np.nan)},
        {"P": -good["P"]},
        {"reward": good["reward"][:, :-1]},
        {"initial_state": np.array(99)},
        {"initial_state": np.array([0])},
        {"threshold": np.array("a")},
        {"slack": np.array(np.nan)},
        {"more": np.zeros(3)},
    ):
        with (tmp_path / "problem.npz").open("w+b") as file:
            sealed_npz.write(file, {**good, **change}, compress=True)
        with pytest.raises(es.DamagedFile, match=r"problem\.npz"):
            es.LinearCMDP.load(tmp_path / "problem.npz")


def test_the_old_name_still_works_and_says_where_it_went():
    import importlib

    with pytest.warns(DeprecationWarning, match=r"episafe\.storage\.checkpoint"):
        moved = importlib.import_module("episafe.runs.checkpoint")
    assert moved.read is checkpoint.read and moved.write is checkpoint.write
