"""`episafe preflight`: what it expects is what happens."""

import json

import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.tools.preflight import expected_incumbent_episodes, preflight


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_expected_incumbent_episodes_are_those_of_a_run_within_a_factor_of_three(name, seed):
    cmdp = es.make(name, seed)
    constants = es.Constants.paper(name)
    record = es.run(cmdp, es.OPSE(cmdp.task, constants, es.Doubling(0.1)), num_episodes=3000, seed=seed)
    measured = record.safe_deployments()[-1]
    assert measured / 3 <= expected_incumbent_episodes(cmdp, constants) <= 3 * measured
    assert expected_incumbent_episodes(cmdp, constants.replace(C_u=10 * constants.C_u)) > 20 * measured


def test_what_preflight_says_of_the_theorem():
    cmdp = es.make("linear", seed=0)
    found = preflight(cmdp, num_episodes=10_000)
    proved, tuned, published = found["choices"]
    assert [choice["level"] for choice in found["choices"]] == ["theorem", "heuristic", "heuristic"]
    assert proved["constants"]["C_u"] == es.Constants.theory(cmdp.task, 10_000).C_u
    assert tuned["expected_incumbent_episodes"] < published["expected_incumbent_episodes"] < 1e4
    assert 1e6 < proved["expected_incumbent_episodes"] < proved["most_incumbent_episodes"]
    assert sum(proved["regret_bound"].values()) > found["problem"]["worst_regret"]
    shrunk = {row["what"]: row["incumbent_phase"] for row in found["would_shrink"]}
    assert shrunk["as it is"] == found["incumbent_phase"]
    assert shrunk["twice the slack"] < 0.3 * shrunk["as it is"]
    assert shrunk["half the features"] < 0.3 * shrunk["as it is"]


def test_the_command_prints_tables_and_the_same_as_json(tmp_path):
    es.make("streaming", seed=4).save(tmp_path / "mine.npz")
    words = ["preflight", "--problem", str(tmp_path / "mine.npz"), "--episodes", "500"]
    shown = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert shown["problem"]["num_episodes"] == 500
    plain = CliRunner().invoke(app, words)
    assert plain.exit_code == 0, plain.output
    for word in ("theory (theorem)", "tuned (heuristic)", "Episodes of the incumbent", "twice the slack", "halvings"):
        assert word in plain.stdout
    wrong = CliRunner().invoke(app, ["preflight", "--delta", "2"])
    assert wrong.exit_code == 2
    assert "delta must be a probability" in wrong.output


def test_an_incumbent_phase_comes_first_and_logs_count_towards_it():
    cmdp = es.make("streaming", seed=0)
    agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task), es.Every(), num_safe_episodes=200)
    log = es.run(cmdp, es.Fixed(cmdp.task, "incumbent"), num_episodes=1)
    assert log.sources[0] == "fixed"
    for _ in range(60):
        agent.learn(es.Episode([0] * 5, [1] * 4))
    record = es.run(cmdp, agent, num_episodes=300)
    assert (record.sources[:140] == "safe").all()
    assert (record.sources[140:] != "safe").all()
    assert record.settings["num_safe_episodes"] == 200
    assert agent.plan().source != "safe"
    with pytest.raises(ValueError, match="num_safe_episodes must be a whole number"):
        es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task), num_safe_episodes=1.5)


def test_a_problem_of_ones_own_is_named_and_forecast(tmp_path, monkeypatch):
    """Its constants are not: they are of the paper's theorem, and nobody asked."""
    monkeypatch.chdir(tmp_path)
    text = "import episafe as es\n\n\ndef problem():\n    return es.make('inventory')\n\n\nnumber = 3\n"
    (tmp_path / "forecast_shop.py").write_text(text)
    told = CliRunner().invoke(app, ["preflight", "forecast_shop:problem"])
    assert told.exit_code == 0 and "half of it after about" in told.output and "C_dagger" not in told.output
    wrong = CliRunner().invoke(app, ["preflight", "forecast_shop:number"])
    assert wrong.exit_code == 2 and "is a int: name a problem" in wrong.output
    check = CliRunner().invoke(app, ["check", "forecast_shop:problem"])
    assert check.exit_code == 2 and "`episafe preflight forecast_shop:problem` says" in check.output
