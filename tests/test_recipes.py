"""Every recipe runs as it stands: the blocks of a page, one after another, as one program in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

RECIPES = Path(__file__).parent.parent / "docs" / "recipes"
PAGES = sorted(path for path in RECIPES.glob("*.md") if path.name != "README.md")
WALK = RECIPES.parent / "production.md"
MODELS, TRACKERS = RECIPES / "models.md", RECIPES / "trackers.md"
SIZES = [("observation", 2), ("logits", 3)]


def run(page, folder, library="stand-in", *options):
    """What the program of a page prints, with the blocks that need nothing and those of a library, or its stand-in."""
    text = page.read_text()
    for name, module in re.findall(r"```python file=(\S+)\n(.*?)```", text, re.S):
        (folder / name).write_text(module)
    program = folder / "recipe.py"
    program.write_text("\n".join(re.findall(rf"```python(?: {library})?\n(.*?)```", text, re.S)))
    done = subprocess.run([sys.executable, *options, program.name], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("page", [*PAGES, WALK], ids=lambda page: page.stem)
def test_a_recipe_runs_as_it_stands(page, tmp_path):
    assert run(page, tmp_path, "stand-in", "-W", "error")


@pytest.mark.slow
def test_an_onnx_file_by_the_real_library(tmp_path):
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    weights = np.array([[0.1, 2.0, -1.0], [1.0, 0.0, 0.5]], dtype=np.float32)
    told = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, size]) for name, size in SIZES]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["observation", "weights"], ["logits"])],
        "policy", told[:1], told[1:], [onnx.numpy_helper.from_array(weights, "weights")],
    )  # fmt: skip
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "policy.onnx")
    likely = np.exp(np.array([1.0, 0.5], dtype=np.float32) @ weights)
    assert str((likely / likely.sum()).round(3)) in run(MODELS, tmp_path, "onnxruntime")


@pytest.mark.slow
def test_a_tracker_by_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(TRACKERS, tmp_path, "tensorboard")
    kept = EventAccumulator(str(tmp_path / "runs" / "tracked"))
    kept.Reload()
    assert {"acting/incumbent", "episode/utility", "episode/reward"} <= set(kept.Tags()["tensors"])


@pytest.mark.slow
def test_a_tracker_by_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is no part of the lock: see CONTRIBUTING.md")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'runs'}")
    run(TRACKERS, tmp_path, "mlflow")
    (kept,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert kept.data.metrics["episode/utility"] == 0.8 and "acting/incumbent" in kept.data.metrics


def test_every_recipe_is_listed():
    index = (RECIPES / "README.md").read_text()
    assert [page.name for page in PAGES if f"({page.name})" not in index] == []
