"""The battery of `make faults` in a short form: every row survives."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import faults

ELSEWHERE = (
    faults.hostile_files,
    faults.unreadable_files,
    faults.changed_while_open,
)  # all of it is in test_checkpoint.py, test_reading.py, test_journal_faults.py
COUNTS = {faults.upgrades: 8, faults.kills: 6, faults.live_kills: 2, faults.bit_flips: 20, faults.tampered_trails: 9}


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, row, _ in faults.ROWS if row not in ELSEWHERE])
def test_every_fault_is_survived(name, row):
    outcome = row(COUNTS.get(row, 3))
    assert outcome.survived == outcome.made > 0, f"{name}: {outcome.note}"
