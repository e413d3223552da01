"""The examples run, in one interpreter, and show what their first lines say."""

import importlib.util
from pathlib import Path

import episafe as es

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_and_short():
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == {"inventory", "own_environment", "canary", "paper"}
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


def test_paper(capsys):
    records = load("paper").main(300, environments=("streaming",))
    assert records["streaming", "opse"].violation()[-1] == 0 < records["streaming", "ghosh"].violation()[-1]
    assert "regret" in capsys.readouterr().out
