"""SIGKILL under load, a few times per log; `benchmarks/kills.py` kills hundreds of times."""

import sys
import uuid
from pathlib import Path

from test_log import postgres  # noqa: F401  # a fixture

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import kills


def test_nothing_acknowledged_is_lost_or_applied_twice_in_a_file(tmp_path):
    assert ": 0 lost, 0 twice" in kills.run(str(tmp_path), None, 2, during=0.1)


def test_nothing_acknowledged_is_lost_or_applied_twice_in_postgresql(postgres):  # noqa: F811
    assert ": 0 lost, 0 twice" in kills.run(postgres.address, str(uuid.uuid4()), 1, postgres, during=0.1)


def test_the_check_finds_what_is_lost(tmp_path):
    kills.run(str(tmp_path), None, 1, during=0.1)
    assert kills.check(str(tmp_path), None, [("report", 10**9), ("deploy", 0)])[:2] == (1, 0)
