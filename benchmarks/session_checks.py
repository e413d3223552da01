"""Check what a session promises at full size: damaged logs, reports that depend on the outcome, two processes.

    python benchmarks/session_checks.py [--runs 200] [--interleaved 10000]

- Each event of a log is removed, repeated, edited, swapped and cut off, with the head kept elsewhere: all are found.
- Late, lost and repeated reports that depend on the outcome, at δ = 0.3: violations stay below δ in each way.
- Two processes interleave deployments: equal states, an intact chain, and no bound above that of a serial replay.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import episafe as es

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from session_speed import interleave

from test_audit import audit_lines, changes_of
from test_session import AGENTS, WAYS, count_violations, live


def check_damage(folder: Path) -> bool:
    """Change each event of a log; print how many changes an audit finds."""
    with es.open(folder / "log", AGENTS["observation"]()) as session:
        live(session, 60, np.random.default_rng(0))
        session.halt(reason="a test")
        session.resume(reason="a test")
        head = session.head
    lines, made, found = (folder / "log" / "log.jsonl").read_bytes().splitlines(), 0, 0
    for k in range(len(lines)):
        for forged in changes_of(lines, k).values():
            made, found = made + 1, found + (not audit_lines(forged, folder / "forged", head).passed)
    intact = audit_lines(lines, folder / "forged", head).passed
    print(f"damaged logs: {found} of {made} changes of {len(lines)} events found; the intact log passes: {intact}")
    return intact and found == made


def check_reports(runs: int, delta: float = 0.3) -> bool:
    """Let the outcome decide which reports arrive; print the share of runs with a violation."""
    held = True
    for how in WAYS:
        wrong, misled = count_violations(how, runs, delta, np.random.default_rng(1))
        print(
            f"{how.__name__}: {wrong} of {runs} runs violate, δ = {delta}; reports alone mislead in {misled}",
            flush=True,
        )
        held = held and wrong <= delta * runs
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--interleaved", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        held = [check_damage(Path(place)), check_reports(asked.runs)]
        held += [interleave(Path(place) / "two", asked.interleaved)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
