"""The command line as a person or a program uses it."""

import json
import math
import os
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.cli import app
from episafe.experiments import specification, worker_pool
from episafe.experiments.executors import Here
from episafe.experiments.job import Job
from episafe.learning.planner import parse_replan
from episafe.registry import AGENTS, BANDIT_AGENTS
from episafe.stats import rate_interval

runner = CliRunner()


def invoke(*words):
    return runner.invoke(app, [str(word) for word in words])


def test_the_first_sentence_says_expected():
    assert "expected utility of every deployed policy" in " ".join(invoke("--help").output.replace("*", "").split())
    assert "*expected*" in es.__doc__.splitlines()[0]
    root = Path(__file__).parents[1]
    assert "*expected*" in (root / "README.md").read_text().split(".")[0]
    assert "expected" in tomllib.loads((root / "pyproject.toml").read_text())["project"]["description"]


def test_list_names_every_environment_and_agent():
    shown = json.loads(invoke("list", "--json").stdout)
    assert shown["environments"]["tabular"]["num_states"] == 5
    assert set(shown["agents"]) == set(AGENTS)
    assert set(shown["certifiers"]) == {"model", "observation", "roomier", "hindsight", "fresh-data", "box"}
    assert set(shown["bandit_agents"]) == set(BANDIT_AGENTS)
    assert shown["bandit_environments"]["finite"]["num_arms"] == 50
    plain = invoke("list")
    assert plain.exit_code == 0
    assert all(word in plain.stdout for word in ("streaming", "ellipsoid", "safe-lucb"))


def test_run_prints_the_same_figures_as_the_library_and_saves_the_record(tmp_path):
    done = invoke(
        "run", "--env", "streaming", "--agent", "opse", "--episodes", 120, "--seed", 3, "--set", "C_u=1.5",
        "--set", "buffer_length=4", "--replan", "doubling:0.3", "--out", tmp_path, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    cmdp = es.make("streaming", 3, buffer_length=4)
    constants = es.Constants.paper("streaming").replace(C_u=1.5)
    record = es.run(cmdp, es.OPSE(cmdp.task, constants, es.Doubling(0.3)), 120, seed=3)
    shown = json.loads(done.stdout)
    assert shown["regret"] == record.regret()[-1]
    assert shown["violation"] == 0
    assert shown["level"] == "heuristic"
    assert es.Record.load(tmp_path).settings["C_u"] == 1.5


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_runs_by_name(agent):
    env = "inventory" if AGENTS[agent].mdp.exogenous_only else "tabular"
    done = invoke("run", "--agent", agent, "--env", env, "--episodes", 30)
    assert done.exit_code == 0, done.output
    assert "regret" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "--env", "maze"], 2, "no environment 'maze'"),
        (["run", "--env", "shop:problem"], 2, "--env shop:problem: `run` knows"),
        (["run", "--env", "a:b"], 2, "--env a:b: `run` knows"),  # :b: is no picture
        (["run", "--agent", "ppo"], 2, "no agent 'ppo'"),
        (["run", "--set", "C_q=1"], 2, "no 'C_q'; there are constants B_dagger, C_dagger"),
        (["run", "--set", "C_u"], 2, "NAME=VALUE"),
        (["run", "--set", "C_u=much"], 2, "not a number"),
        (["run", "--set", "C_u=-1"], 2, "C_u must be a finite number >= 0"),
        (["run", "--replan", "sometimes"], 2, "replan must be"),
        (["run", "--constants", "best"], 2, 'constants must be "published", "tuned" or "theory"'),
        (["run", "--constants", "tuned", "--agent", "dope"], 2, "tuned constants are for opse"),
        (["calibrate", "maze"], 2, "no environment 'maze'"),
        (["run", "--episodes", "0"], 2, "greater than or equal to 1"),
        (["report", "no-such-folder"], 2, "no folder"),
        (["run", "--set", 'level="theorem"'], 2, "no 'level'; there are"),
        (["run", "--agent", "uniform", "--set", "kappa=2"], 2, "uniform reads no constants"),
        (
            ["run", "--agent", "optcmdp", "--constants", "theory"],
            2,
            "optcmdp reads no constants: leave out --constants",
        ),
        (["run", "--set", "num_states=2.5"], 2, "num_states must be a whole number"),
        (["run", "--env", "[red]x"], 2, "no environment '[red]x'"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_wrong_use_is_exit_code_2_with_the_remedy(words, code, message):
    done = invoke(*words)
    assert done.exit_code == code
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(("which", "level"), [("tuned", "heuristic"), ("theory", "theorem")])
def test_run_takes_constants_by_name_with_their_replanning_rule(which, level):
    shown = json.loads(invoke("run", "--env", "streaming", "--constants", which, "--episodes", 200, "--json").stdout)
    assert shown["level"] == level
    assert shown["plans"] == 200 if which == "theory" else 5 < shown["plans"] < 150
    assert (shown["incumbent_deployments"] == 200) == (which == "theory")


@pytest.mark.parametrize(
    ("words", "agent"),
    [
        (["--env", "inventory"], "opse-hindsight"),
        (["--env", "tabular", "--set", "C_r=0.1"], "opse-observation"),
        (["--env", "tabular", "--replan", "every"], "opse"),
        (["--env", "tabular", "--certifier", "box"], "opse-box"),
    ],
)
def test_run_begins_with_the_recommended_agent(words, agent):
    """Options of the paper's agent mean that one."""
    assert json.loads(invoke("run", *words, "--episodes", 12, "--json").stdout)["agent"] == agent


def test_frontier_writes_its_points_and_its_figure(tmp_path, here):
    words = ("--env", "streaming", "--seeds", 2, "--fresh", 3, "--episodes", 40, "--out", tmp_path, "--json")
    done = invoke("frontier", *words)
    assert done.exit_code == 0, done.output
    points = json.loads(done.stdout)["points"]
    assert len(points) == 4 * 7  # every agent has as many settings
    assert {point["level"] for point in points} == {"heuristic"}
    assert len((tmp_path / "frontier.csv").read_text().splitlines()) == 29
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    assert json.loads(invoke("frontier", *words).stdout)["points"] == points  # from the records that are there


def test_the_best_of_a_frontier_is_judged_on_problems_that_did_not_pick_it(tmp_path, here):
    words = ("--env", "tabular", "--seeds", 3, "--fresh", 8, "--episodes", 600, "--out", tmp_path, "--json")
    found = json.loads(invoke("frontier", *words).stdout)
    for winner in found["winners"]:
        rivals = [one for one in found["points"] if one["agent"] == winner["agent"] and not one["num_violating"]]
        best = min(rivals, key=lambda one: one["regret"])
        assert (winner["multiplier"], winner["regret_where_picked"]) == (best["multiplier"], best["regret"])
        assert winner["num_problems"] == 8 and winner["regret"] != best["regret"]
        low, high = rate_interval(winner["num_violating"], 8)
        assert (winner["rate_low"], winner["rate_high"]) == (low, high)
    assert len((tmp_path / "winners.csv").read_text().splitlines()) == 1 + len(found["winners"]) > 1


def test_run_does_not_overwrite_a_record(tmp_path):
    assert invoke("run", "--episodes", 5, "--out", tmp_path / "one").exit_code == 0
    again = invoke("run", "--episodes", 5, "--out", tmp_path / "one")
    assert again.exit_code == 2
    assert "holds a record already" in " ".join(again.output.split())
    (tmp_path / "file").write_text("")
    assert invoke("run", "--episodes", 5, "--out", tmp_path / "file").exit_code == 1


def test_a_damaged_record_is_exit_code_4(tmp_path):
    invoke("run", "--episodes", 5, "--out", tmp_path / "records" / "one")
    (tmp_path / "records" / "one" / "episodes.npz").write_bytes(b"torn")
    done = invoke("report", tmp_path)
    assert done.exit_code == 4
    assert "episodes.npz" in done.output


def test_an_infeasible_problem_is_exit_code_3(tmp_path, monkeypatch):
    def infeasible(*_, **__):
        raise es.Infeasible("threshold 9 cannot be reached")

    monkeypatch.setattr("episafe.envs.make", infeasible)
    assert invoke("run", "--episodes", 5).exit_code == 3


def test_every_command_shows_an_example_in_its_help():
    for command in ("list", "run", "paper", "report", "bench"):
        shown = invoke(command, "--help").stdout
        assert "Example" in shown
        assert f"episafe {command}" in shown


def test_replanning_rules_are_parsed():
    assert parse_replan("every") == es.Every()
    assert parse_replan("doubling:0.5") == es.Doubling(0.5)
    assert parse_replan("doubling") == es.Doubling(0.3)
    with pytest.raises(ValueError, match="growth must be > 0"):
        parse_replan("doubling:0")


@pytest.fixture
def here(monkeypatch):
    """Jobs run in this process: pools are tested in test_sweep.py."""
    monkeypatch.setattr(worker_pool, "processes", lambda workers: nullcontext(Here()))


@pytest.fixture
def tiny_paper(monkeypatch):
    tiny = specification.Experiment(
        title="tiny",
        environments=["tabular", "streaming"],
        variants=["released"],
        agents=["opse", "uniform"],
        num_seeds=2,
        num_episodes=20,
        replan={"opse/tabular": "doubling:0.3"},
        cost={},
    )
    monkeypatch.setattr("episafe.experiments.comparisons.paper_experiment", lambda quick: tiny)
    return tiny


def test_paper_makes_every_record_and_the_report_and_repeats_nothing(tmp_path, tiny_paper):
    first = invoke("paper", "--quick", "--out", tmp_path, "--workers", 1)
    assert first.exit_code == 0, first.output
    assert "8 runs made, 0 were there already" in first.stdout
    assert (tmp_path / "report.html").exists()
    record = es.Record.load(tmp_path / "records" / "tabular-released-opse-1")
    assert record.settings["replan"] == "Doubling(growth=0.3)"
    assert len(record.reward_values) == 20

    again = invoke("paper", "--quick", "--out", tmp_path, "--workers", 1)
    assert "0 runs made, 8 were there already" in again.stdout

    stamp = (tmp_path / "records" / "streaming-released-opse-0" / "run.toml").stat().st_mtime_ns
    (tmp_path / "records" / "tabular-released-opse-1" / "run.toml").unlink()  # as if stopped before its end
    resumed = invoke("paper", "--quick", "--out", tmp_path, "--workers", 1)
    assert "1 runs made, 7 were there already" in resumed.stdout
    assert (tmp_path / "records" / "streaming-released-opse-0" / "run.toml").stat().st_mtime_ns == stamp


def test_paper_refuses_a_folder_with_another_experiment(tmp_path, tiny_paper):
    (tmp_path / "experiment.toml").write_text("title = 'another'\n")
    done = invoke("paper", "--out", tmp_path)
    assert done.exit_code == 2
    assert "another experiment" in " ".join(done.output.split())


def test_a_failed_job_is_reported_with_exit_code_1_and_the_others_are_kept(tmp_path, tiny_paper, here, monkeypatch):
    record = Job.record

    def failing(self):
        if self.name == "tabular-released-opse-0":
            raise RuntimeError("out of luck")
        return record(self)

    monkeypatch.setattr(Job, "record", failing)
    done = invoke("paper", "--out", tmp_path)
    assert done.exit_code == 1
    assert "tabular-released-opse-0: RuntimeError: out of luck" in " ".join(done.output.split())
    assert "7 runs made" in done.stdout


def test_the_papers_experiment_is_the_papers():
    full, quick = specification.paper_experiment(quick=False), specification.paper_experiment(quick=True)
    assert (full.num_seeds, full.num_episodes, quick.num_seeds, quick.num_episodes) == (10, 10_000, 3, 1_000)
    ours = ["opse-observation", "opse-fresh-data", "incumbent"]
    assert [agent for agent in full.agents if agent not in ours] == ["opse", "ghosh", "dope", "uniform"]
    names = [job.name for job in full.jobs()]
    assert len(names) == len(set(names)) == 3 * 2 * 7 * 10
    rules = {(job.env, job.agent): job.replan for job in full.jobs()}
    assert rules["linear", "dope"] == "doubling:0.3"
    assert {rule for kind, rule in rules.items() if kind != ("linear", "dope")} == {"every"}


@pytest.mark.parametrize("quick", [True, False])
def test_what_is_left_of_a_bench_is_told_by_what_its_parts_cost(monkeypatch, quick):
    from episafe.tools import bench

    for name in ("_speed", "_rounds_speed", "_growth", "live_speeds"):
        monkeypatch.setattr(bench, name, lambda *_: None)
    shares = []
    bench.measure(quick, shares.append)
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0) and shares[-2] < 0.9  # the last is long


def test_bench_reports_counts_that_do_not_depend_on_the_machine():
    """No timing is asserted: plans, violation, and the bound 1 + dH ln(1 + K/(ρd))/growth on plans under doubling."""
    found = json.loads(invoke("bench", "--quick", "--json").stdout)
    rows = {(row["env"], row["agent"], row["replan"]): row for row in found["speeds"]}
    assert len(rows) == 18
    assert rows["tabular", "opse", "every"]["plans"] == 1000
    for env, dim in (("tabular", 15), ("streaming", 12), ("linear", 5)):
        row = rows[env, "opse", "doubling:0.3"]
        assert row["plans"] <= 1 + dim * 4 * math.log(1 + 1000 / dim) / 0.3
        assert row["violation"] == 0
        assert min(row[part] for part in ("planning", "simulating", "evaluating")) >= 0
    # half of it is the values of eight λ at once: 59 KiB, against 42 with one λ at a time
    assert rows["tabular", "opse", "every"]["learner_kib"] == rows["tabular", "ghosh", "every"]["learner_kib"] < 60
    sizes = [growth["sizes"] for growth in found["growths"]]
    assert sizes == [[1000, 10_000], [100, 10_000, 1_000_000], [30, 100], [3, 10], [50, 100], [50, 100]]


def test_bandit_makes_every_record_and_the_report_and_repeats_nothing(tmp_path, monkeypatch):
    tiny = replace(specification.bandit_experiment(quick=True), environments=["finite", "contexts"], num_seeds=2,
                   num_rounds=40, slacks=[0.3, 0.2], agents=["oplbsp", "oplb", "oful", "incumbent"])  # fmt: skip
    monkeypatch.setattr("episafe.experiments.comparisons.bandit_experiment", lambda quick: tiny)
    first = invoke("bandit", "--quick", "--out", tmp_path, "--workers", 1)
    assert first.exit_code == 0, first.output
    assert "18 runs made, 0 were there already" in first.stdout  # OPLB on finite sets only; 4 for the slacks
    page = (tmp_path / "report.html").read_text()
    assert "Against the incumbent" in page and "Regret as the slack shrinks" in page
    assert "the incumbent’s exact utility" in page  # what OPLB is told besides
    assert (tmp_path / "figures" / "slack.png").exists()
    again = invoke("bandit", "--quick", "--out", tmp_path, "--workers", 1)
    assert "0 runs made, 18 were there already" in again.stdout


def test_the_bandit_experiment_is_the_issues():
    full = specification.bandit_experiment(quick=False)
    assert (full.num_seeds, full.num_rounds, full.slack, full.noise, full.delta) == (20, 100_000, 0.3, 0.5, 0.05)
    names = [job.name for job in full.jobs()]
    assert len(names) == len(set(names)) == (4 * 6 + 1) * 20


def test_it_is_installed_as_a_command():
    shown = subprocess.run([sys.executable, "-m", "episafe", "--help"], capture_output=True, text=True, check=True)
    assert "Improve a policy online" in shown.stdout


def test_a_reader_who_leaves_ends_the_command_quietly():
    listing = subprocess.Popen(
        [sys.executable, "-m", "episafe", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    listing.stdout.close()
    assert (listing.stderr.read(), listing.wait()) == ("", 141)
    listing.stderr.close()


@pytest.mark.parametrize("command", [(), ("run",), ("benchmark",)])
def test_flags_show_no_value_in_the_help(command):
    shown = invoke(*command, "--help").stdout
    assert "--help" in shown and "<bool>" not in shown


def test_version_short_help_and_completion_of_values():
    assert invoke("--version").stdout.startswith("episafe 0.")
    assert invoke("run", "-h").exit_code == 0
    asked = subprocess.run(
        [sys.executable, "-c", "from episafe.cli import app; app(prog_name='episafe')"], text=True, capture_output=True,
        env=os.environ
        | {"_EPISAFE_COMPLETE": "complete_bash", "COMP_WORDS": "episafe run --env str", "COMP_CWORD": "3"},
    )  # fmt: skip
    assert "streaming" in asked.stdout.split()


def test_run_says_where_it_is_kept_and_what_to_do_next(tmp_path):
    shown = invoke("run", "--env", "streaming", "--episodes", 20, "--out", tmp_path / "mine").stdout
    for command in ("report", "audit", "resume"):
        assert f"episafe {command} {tmp_path / 'mine'}" in shown
    found = json.loads(invoke("resume", tmp_path / "mine", "--json").stdout)
    record = es.Record.load(tmp_path / "mine")
    cmdp = es.make("streaming", 0)
    assert (found["environment"], found["agent"], found["seed"]) == ("streaming", "opse-observation", 0)
    assert found["folder"] == str(tmp_path / "mine")
    assert (found["incumbent_reward"], found["incumbent_utility"]) == cmdp.evaluate(cmdp.task.safe_policy)
    assert found["final_reward"] == record.reward_values[-1]
    assert found["incumbent_episodes"] == int((record.acting == "incumbent").sum())


def test_a_problem_that_does_not_fit_in_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    es.make("streaming", 0).save(tmp_path / "mine.npz")
    monkeypatch.setattr("episafe.problems.cmdp.LARGEST", 100)
    monkeypatch.setattr("episafe.problems.cmdp.read_arrays", None)
    done = invoke("preflight", "--problem", tmp_path / "mine.npz")
    assert done.exit_code == 3 and "state fewer steps, states or actions" in " ".join(done.output.split())


@pytest.mark.parametrize("command", ["serve", "dashboard", "audit", "resume", "explain", "repair", "run"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path, command):
    file = tmp_path / "notes.txt"
    file.write_text("no folder")
    besides = {
        "serve": [file, "--agent", "test_life:rollout", "--port", 18977],
        "run": ["--episodes", 1, "--out", file],
    }
    done = invoke(command, *besides.get(command, [file]))
    assert done.exit_code == 1 and "pathlib" not in done.output
    assert f"{file} is a file, not a folder: name the folder" in " ".join(done.output.split())


def test_an_interrupted_run_says_how_to_go_on(tmp_path, monkeypatch):
    folder, begun = tmp_path / "mine", es.run

    def stop(*asked, **named):
        raise KeyboardInterrupt

    def stop_later(*asked, **named):
        return begun(*asked, **{**named, "on_progress": stop})

    monkeypatch.setattr("episafe.runs.run.run", stop)
    done = invoke("run", "--env", "streaming", "--out", folder)
    assert done.exit_code == 130 and not folder.exists()
    assert f"stopped before {folder} was begun: run the same command again" in " ".join(done.output.split())
    monkeypatch.setattr("episafe.runs.run.run", stop_later)
    done = invoke("run", "--env", "streaming", "--out", folder)
    assert done.exit_code == 130 and f"go on with `episafe resume {folder}`" in " ".join(done.output.split())
    monkeypatch.setattr("episafe.runs.run.run", stop)
    assert "nothing is kept without --out" in invoke("run", "--env", "streaming").output


def test_report_as_json(tmp_path):
    invoke("run", "--env", "streaming", "--episodes", 20, "--out", tmp_path / "mine")
    assert json.loads(invoke("report", tmp_path / "mine", "--json").stdout) == {
        "report": str(tmp_path / "mine" / "report.html")
    }


def test_no_line_of_figures_is_wider_than_a_terminal(tmp_path):
    invoke("run", "--env", "tabular", "--certifier", "observation", "--episodes", 400, "--out", tmp_path / "mine")
    shown = invoke("audit", tmp_path / "mine").stdout.partition("figures are of the first plan")[2].splitlines()[1:]
    assert len(shown) > 5 and all(len(line) <= 80 for line in shown if line.split()[0].replace(",", "").isdigit())


def test_bad_names_are_said_in_one_line_before_anything_is_done(tmp_path):
    for words, said in (
        (["frontier", "--env", "nowhere", "--out", str(tmp_path / "x")], "no environment 'nowhere'"),
        (["dashboard", str(tmp_path / "none")], "holds no journal"),
        (["sweep", str(tmp_path / "none.toml")], "there is no file"),
    ):
        done = invoke(*words)
        assert done.exit_code == 2 and said in done.output and "http" not in done.output and "Errno" not in done.output


def test_every_command_is_in_a_part_of_the_help_and_flags_take_no_value():
    text = runner.invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "─ Commands ─" not in text and "Your own system" in text
    assert "--json      " in runner.invoke(app, ["bench", "--help"], env={"COLUMNS": "80"}).output
