"""Cached machine code is never older than the sources it was made from, and all of it is made in one place."""

import errno
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import episafe
from episafe.kernels import backward_pass, decision, simulation, softmax_loop
from episafe.kernels.compilation import IndexDataCacheFile, kernel, source_stamp

PACKAGE = Path(episafe.__file__).parent
PROGRAM = """
import episafe as es
cmdp = es.make("streaming", seed=0)
record = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("streaming"), es.Doubling(0.3)), 60)
print(record.utility_values.sum())
"""


def test_only_kernels_import_numba_llvm_and_the_decorators():
    for path in PACKAGE.rglob("*.py"):
        found = re.findall(
            r"^\s*(?:from|import) (numba|llvmlite|episafe\.kernels\.compilation)\b", path.read_text(), re.M
        )
        assert not found or path.parent == PACKAGE / "kernels", path


def test_every_kernel_lies_in_kernels():
    for path in PACKAGE.rglob("*.py"):
        decorated = re.search(r"^@(\w*kernel|by_model|\w*jit|overload|intrinsic)\b", path.read_text(), re.M)
        assert not decorated or path.parent == PACKAGE / "kernels", path


def test_every_cache_is_tied_to_all_sources():
    made = decision.decide, simulation.policy_values, simulation.simulate, softmax_loop.play
    for function in (*made, backward_pass.softmax_step.in_kernels):
        assert function._cache._cache_file._source_stamp == source_stamp()


def test_the_stamp_covers_every_file_that_holds_kernels():
    files = sorted((PACKAGE / "kernels").glob("*.py"))
    assert source_stamp() == hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_a_change_in_one_file_is_seen_by_compiled_code_in_another(tmp_path):
    """The loop in kernels/softmax_loop.py must not go on with the old check of kernels/mixing.py."""
    shutil.copytree(PACKAGE, tmp_path / "episafe", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True
        )
        return float(done.stdout)

    before = run()
    changed = tmp_path / "episafe" / "kernels" / "mixing.py"
    text = changed.read_text()
    assert text.count("return utility_bound >= threshold") == 1
    changed.write_text(text.replace("return utility_bound >= threshold", "return utility_bound >= threshold + 0.5"))
    assert run() > before + 1


def test_a_disk_that_is_full_costs_the_cache_and_no_result(monkeypatch):
    refused = []

    def full(self, *_):
        refused.append(self)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_index", full)
    assert kernel(_twice)(21) == 42
    assert refused


def _twice(number):
    return 2 * number
