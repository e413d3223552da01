"""Cached machine code is never older than the sources it was made from."""

import shutil
import subprocess
import sys
from pathlib import Path

import episafe
from episafe.kernels import backward_pass, decision, simulation
from episafe.kernels.compilation import source_stamp
from episafe.problems import exact
from episafe.runs import compiled

PROGRAM = """
import episafe as es
cmdp = es.make("streaming", seed=0)
record = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("streaming"), es.Doubling(0.3)), 60)
print(record.utility_values.sum())
"""


def test_every_cache_is_tied_to_all_sources():
    for made in (decision.decide, backward_pass.softmax_step, exact.policy_values, simulation.simulate, compiled._play):
        assert made._cache._cache_file._source_stamp == source_stamp()


def test_a_change_in_one_file_is_seen_by_compiled_code_in_another(tmp_path):
    """The loop in runs/compiled.py must not go on with the old Algorithm 2 of kernels/decision.py."""
    shutil.copytree(Path(episafe.__file__).parent, tmp_path / "episafe", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True
        )
        return float(done.stdout)

    before = run()
    changed = tmp_path / "episafe" / "kernels" / "decision.py"
    text = changed.read_text()
    assert text.count("return utility_bound >= threshold") == 1
    changed.write_text(text.replace("return utility_bound >= threshold", "return utility_bound >= threshold + 0.5"))
    assert run() > before + 1
