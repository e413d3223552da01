"""The command line: commands, examples, exit codes, and errors that name what is wrong."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe import cli

COMMANDS = ("list", "run", "paper", "sweep", "benchmark", "report", "check", "audit", "explain", "serve", "dashboard")
OWN = """
import episafe as es

def machine(limit=4.0, slack=0.5, incumbent=(1.0, 0.0)):
    return es.SampledCMDP(
        es.features.OneHot(size=4), lambda h, s: [0.4, 0.9], lambda h, s: [float(s < 3)] * 2,
        lambda h, s, a, rng: min(s + int(rng.random() < (0.5 if a else 0.1)), 3),
        horizon=5, num_actions=2, initial_state=0, threshold=limit, safe_policy=lambda h, s: incumbent, slack=slack,
        units={"reward": "parts", "utility": "hours in order"},
    )

problem = machine()
unsafe = machine(4.8, 0.1, (0.0, 1.0))
unmeasured = machine(slack=None)

def agent():
    return es.SafeAgent(es.make("tabular", seed=0))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own_machine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_machine", None)
    sys.path[:] = [one for one in sys.path if one != str(tmp_path)]


def run(line, code=0):
    """Return what a command prints; `code` is the exit code that it must have."""
    result = CliRunner().invoke(cli.app, shlex.split(line), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", result.output)).strip()


def test_every_command_has_a_help_with_an_example():
    said = run("--help")
    assert all(name in said for name in COMMANDS)
    registered = [one.name or one.callback.__name__ for one in cli.app.registered_commands]
    assert sorted(registered) == sorted(COMMANDS)
    for name in COMMANDS:
        assert f"Example: episafe {name}" in run(f"{name} --help"), name
    assert run("--version") == f"episafe {es.__version__}"


def test_list_names_environments_with_their_options_and_agents():
    found = json.loads(run("list --json"))
    assert found["environments"]["inventory"]["service_level"] == 0.9
    assert {"safe", "opse", "ghosh", "dope", "incumbent"} <= set(found["agents"])
    assert "service_level=0.9" in run("list")


def test_run_ends_with_a_verdict_and_writes_a_page(place):
    said = run("run inventory --episodes 60 --out one")
    assert re.search(r"Safe: by exact values none of the 60 deployed policies .* days of demand served.*\.$", said)
    assert "95 % confidence, if the assumptions hold" in said
    assert "days of demand served (of 14)" in (place / "one" / "report.html").read_text()
    assert len(es.Record.load("one").sources) == 60
    assert "choose another --out" in run("run inventory --episodes 60 --out one", cli.USAGE)
    assert run("report one") == "page: one/report.html"
    told = json.loads(run("run tabular --agent ghosh --episodes 60 --seed 2 --json"))
    assert told["verdict"].startswith("Unsafe: by exact values") and told["settings"]["agent"] == "ghosh"


def test_run_takes_options_of_agent_and_environment(place):
    told = json.loads(
        run("run tabular --agent opse --episodes 5 --set constants=tabular --set C_u=2.5 --set env.num_states=4 --json")
    )
    assert told["settings"]["C_u"] == 2.5 and told["settings"]["S"] == 4
    own = run("run own_machine:machine --episodes 40 --set env.limit=3.9")
    assert own.endswith("exact values are unknown.") and "limit: at least 3.9 hours in order" in own and "parts" in own


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run nowhere", "no environment 'nowhere'"),
        ("run tabular --agent nobody", "no agent 'nobody'"),
        ("run tabular --agent dope --set boldness=1", "dope has no option 'boldness'"),
        ("run tabular --set env.sise=1", "tabular has no option 'sise'"),
        ("run tabular --set C_u", "--set takes NAME=VALUE"),
        ("run tabular --boldness 1", "--boldness"),
        ("run inventory --agent opse", "use the agent opse-tuned"),
        ("run own_machine:nothing", "cannot import 'own_machine:nothing'"),
        ("sweep missing.toml", "missing.toml"),
        ("benchmark --sets tubular", "no problem set tubular"),
        ("benchmark --agent opse --sets inventory", "no published constants for inventory"),
        ("report .", "give the folder of a run, a sweep or a session"),
        ("audit nowhere", "give the folder of a session"),
        ("check own_machine:absent", "cannot import"),
    ],
)
def test_mistakes_exit_with_2_and_name_what_is_wrong(place, line, said):
    assert said in run(line, cli.USAGE)


def test_infeasible_problems_exit_with_3_and_damaged_files_with_4(place):
    assert "exceeds the horizon" in run("run own_machine:machine --set env.limit=4.9", cli.UNSAFE)
    run("run tabular --episodes 5 --out one")
    (place / "one" / "episodes.npz").write_bytes(b"")
    assert "does not hold a complete record" in run("report one", cli.DAMAGED)


def test_check_finds_faults_and_forecasts(place):
    said = run("check own_machine:problem --episodes 300")
    assert (
        "planner: cannot tell: " in said and "give episodes of other policies too" in said
    )  # the incumbent has one action
    assert "recommended: candidates, es.SafeAgent(problem, candidates=" in said and "what would help most: " in said
    assert "cannot tell: the slack is unknown; measure it" in run("check own_machine:unmeasured")
    assert "it is not safe; give a safer incumbent" in run("check own_machine:unsafe --episodes 500", cli.UNSAFE)
    assert "(exact)" in run("check inventory --episodes 20")
    assert {"verdict", "text"} == set(json.loads(run("check tabular --json"))[0])


def test_sweep_finishes_what_is_missing_and_fails_by_name(place):
    (place / "two.toml").write_text(
        'episodes = 10\nseeds = [0, 1]\n[[environment]]\nname = "tabular"\n[[agent]]\nname = "incumbent"\n'
        '[[agent]]\nname = "optimum"\n'
    )
    assert run("sweep two.toml --workers 1") == "page: two/report.html"
    assert "4 runs of 2 agents on one environment" in (place / "two" / "report.html").read_text()
    assert run("sweep two.toml --workers 1 --json").startswith('{"folder": "two"')  # nothing is left to run
    (place / "two.toml").write_text((place / "two.toml").read_text() + "boldness = 3\n")
    assert "optimum has no option 'boldness'" in run("sweep two.toml", cli.USAGE)


def test_benchmark_compares_an_agent_from_outside_with_the_reference(place):
    (place / "mine.py").write_text(
        "import episafe as es\nclass Mine(es.Fixed):\n    def __init__(self, problem, policy='incumbent'):\n"
        "        super().__init__(problem, policy)\n"
    )
    said = run("benchmark --agent mine:Mine --sets linear,tabular --problems 1 --episodes 100 --workers 1 --out bench")
    sys.modules.pop("mine", None)
    assert said == "page: bench/benchmark.html"
    page = (place / "bench" / "benchmark.html").read_text()
    assert page.count('class="own"><td>mine:Mine') == 2 and "opse-tuned" in page
    stated = json.loads((place / "bench" / "results.json").read_text())
    assert stated["agents"] == {"mine:Mine": {"agent": "mine:Mine", "options": {}}} and len(stated["results"]) == 2
    assert stated["results"][0]["regret"] == pytest.approx(1.0)


def test_a_session_is_reported_audited_and_explained(place):
    problem, rng = es.make("tabular", seed=0), np.random.default_rng(0)
    with es.open("live", es.SafeAgent(problem)) as session:
        for _ in range(30):
            d = session.deploy()
            states, actions = [0], []
            for h in range(problem.task.horizon):
                actions.append(d.policy.act(h, states[-1], rng))
                states.append(int(rng.choice(5, p=problem.P[h, states[-1], actions[-1]])))
            session.report(d.id, es.Episode(states, actions))
        head = session.head
    assert run(f"audit live --head {head}").startswith("PASSED")
    assert run("audit live --agent own_machine:agent").startswith("PASSED")
    assert json.loads(run("audit live --json"))["passed"] is True
    assert "Deployment 7" in run("explain live 7") and json.loads(run("explain live 7 --json"))["deployment"] == 7
    assert "there is no deployment 99" in run("explain live 99", cli.USAGE)
    assert run("report live") == "page: live/report.html"
    log = place / "live" / "log.jsonl"
    log.write_text(log.read_text().replace('"total_reward":', '"total_reward":1', 1))
    assert run("audit live", cli.DAMAGED).startswith("FAILED")


def test_help_and_run_import_only_what_they_need():
    heavy = "{'numba', 'scipy', 'matplotlib', 'jinja2', 'starlette'}"
    script = (
        f"import sys; from episafe.cli import app; import episafe.report.verdict; print({heavy} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
