"""SIGKILL under load, a few times per log; `benchmarks/kills.py` kills hundreds of times."""

import sys
import uuid
from pathlib import Path

import pytest

from test_log import postgres  # noqa: F401  # a fixture

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import kills


def test_nothing_acknowledged_is_lost_or_applied_twice_in_a_file(tmp_path):
    assert ": 0 lost, 0 twice" in kills.run(str(tmp_path), None, 2, during=0.1)


def test_nothing_acknowledged_is_lost_or_applied_twice_in_postgresql(postgres):  # noqa: F811
    assert ": 0 lost, 0 twice" in kills.run(postgres.address, str(uuid.uuid4()), 1, postgres, during=0.1)


def test_the_check_finds_what_is_lost_or_twice(tmp_path):
    kills.run(str(tmp_path), None, 1, during=0.1)
    lost, twice, number = kills.check(str(tmp_path), None, [("report", 10**9), ("deploy", 0)])
    assert (lost, twice) == (1, 0) and number > 2
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(AssertionError, match="1 lost"):
        whole = [(kind, id) for kind, id in _acknowledged(lines)]
        lost, *_ = kills.check(str(tmp_path), None, whole)
        assert lost == 0, f"{lost} lost"


def _acknowledged(lines):
    import json

    events = [json.loads(line) for line in lines]
    return [(e["kind"], e["body"]["id"]) for e in events if e["kind"] in ("deploy", "report")]
