"""The examples run, in one interpreter, and show what their first lines say."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import episafe as es

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_and_short():
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == {"inventory", "own_environment", "canary", "paper", "road", "power", "ppo"}
    assert all(len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 90 for name in scripts)


def test_inventory(capsys, tmp_path):
    rewards, utilities = load("inventory").main(60, folder=tmp_path / "demo")
    shop = es.make("inventory", seed=0)
    assert (utilities >= shop.task.thresholds[0]).all()
    assert rewards[-1] > rewards[0] + 0.3 * (shop.optimal_value() - rewards[0])
    assert "PASSED" in capsys.readouterr().out


def test_own_environment(capsys):
    record = load("own_environment").main(400)
    assert record.reward_totals[-100:].mean() > record.reward_totals[:50].mean()
    assert "measured in" in (said := capsys.readouterr().out) and "chosen: 16 cells" in said


def test_canary(capsys):
    hours, bounds = load("canary").main(1_000)
    assert hours["image:v2"] > 300 and hours["image:v3"] < 50  # the ruinous version hardly acts
    assert bounds["v2"][0] >= 0.9 > bounds["v3"][0]
    assert "image:v2" in capsys.readouterr().out


def test_ppo(capsys):
    example = load("ppo")
    pytest.importorskip("stable_baselines3")
    record = example.main(100, steps=20_000)
    assert record.reward_totals[-30:].mean() > record.reward_totals[:30].mean()
    assert "at least" in capsys.readouterr().out


def test_paper(capsys):
    records = load("paper").main(300, environments=("streaming",))
    assert records["streaming", "opse"].violation()[-1] == 0 < records["streaming", "ghosh"].violation()[-1]
    assert "regret" in capsys.readouterr().out


def test_real_days(tmp_path):
    for name, limit in (("road", 21.6), ("power", 22.8)):
        found = load(name).main(56, tmp_path / "picture.png")
        assert np.convolve(found[:, 1], np.ones(28) / 28, "valid").min() >= limit
        assert found[-14:, 0].mean() > 8 and (tmp_path / "picture.png").exists()
