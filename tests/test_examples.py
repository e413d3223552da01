"""The examples run, in one interpreter, and show what their first lines say."""

import importlib.util
from pathlib import Path

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


def test_inventory(capsys):
    record = load("inventory").main(60)
    assert record.violation()[-1] == 0 and record.settings["certifier"] == "hindsight"
    assert record.reward_values[-1] > record.reward_values[0] + 0.3 * (record.optimum - record.reward_values[0])
    assert "level theorem" in capsys.readouterr().out


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
