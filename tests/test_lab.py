"""The laboratory: agents and problems by name, sweeps, the benchmark, the paper's comparison, forecasts."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.core.agent import Agent, Doubling
from episafe.lab import benchmark, build, forecast
from episafe.lab.paper import AGENTS, ENVIRONMENTS, paper_sweep, published_table
from episafe.lab.sweep import Job, Sweep

TABULAR = es.make("tabular", 0)
OUTSIDE = """
import episafe as es
from episafe.core.agent import Agent

class Mine(Agent):
    def __init__(self, problem, boldness=1.0):
        super().__init__(problem)
        self.boldness = boldness
    facts = None
    def decide(self):
        return self.incumbent_plan(f"boldness {self.boldness}")
    def observe(self, episode):
        pass
    def settings(self):
        return {"agent": "mine", "level": "heuristic", "boldness": self.boldness}

class Reads(Mine):
    def __init__(self, problem, constants):
        super().__init__(problem)
        self.constants = constants

class Anything(Mine):
    def __init__(self, problem, **options):
        super().__init__(problem)
        self.options = options

def problem(seed, size=5):
    return es.make("tabular", seed, num_states=size)
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "outside_agents.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("outside_agents", None)
    sys.path[:] = [one for one in sys.path if one != str(tmp_path)]


# agents and problems by name


def test_an_agent_with_a_papers_name_runs_the_constants_of_its_paper():
    agent = build.make_agent("opse", TABULAR, 100, {})
    assert agent.constants == es.Constants.paper("tabular", "opse")
    assert build.make_agent("dope", TABULAR, 100, {}).constants == es.Constants.paper("tabular", "dope")
    inventory, larger = es.make("inventory", 0), es.make("tabular", 0, num_states=6)
    with pytest.raises(ValueError, match="no published constants for inventory: use the agent opse-tuned"):
        build.make_agent("opse", inventory, 100, {})
    with pytest.raises(ValueError, match="no published constants for tabular with num_states=6"):
        build.make_agent("opse", larger, 100, {})
    with pytest.raises(ValueError, match="the paper does not run it there"):
        build.make_agent("dope", es.make("linear", 0), 100, {})
    for problem in (inventory, larger):
        named = build.make_agent("opse", problem, 100, {"constants": "tabular"})
        assert named.constants == es.Constants.paper("tabular")
    job = Job("tabular", "opse", 0, 5, (("num_states", 6),), (("constants", "tabular"),))
    assert job.run().settings["setting"] == "opse constants=tabular"
    tuned = build.make_agent("opse-tuned", inventory, 100, {})
    assert tuned.constants == es.Constants.tuned(inventory.task, "opse") and tuned.replan == Doubling(0.3)
    with pytest.raises(ValueError, match="no agent 'safe-tuned'"):
        build.make_agent("safe-tuned", inventory, 100, {})


def test_single_constants_and_rules_are_changed_by_name():
    agent = build.make_agent("opse", TABULAR, 100, {"C_u": 3.5, "replan": "doubling:0.5", "variant": "released"})
    assert agent.constants == es.Constants.paper("tabular").replace(C_u=3.5) and agent.replan == Doubling(0.5)
    assert build.make_agent("opse", TABULAR, 100, {"constants": "theory"}).level == "theorem"
    certified = build.make_agent("safe", TABULAR, 100, {"certifier": "box", "delta": 0.1})
    assert type(certified.certifier).__name__ == "Box" and certified.certifier.delta == 0.1
    for options in ({"replan": "sometimes"}, {"replan": "doubling:x"}, {"constants": "best"}):
        with pytest.raises(ValueError, match=str(next(iter(options)))):
            build.make_agent("opse", TABULAR, 100, options)
    with pytest.raises(ValueError, match="no certifier 'prayer'"):
        build.make_agent("safe", TABULAR, 100, {"certifier": "prayer"})


@pytest.mark.parametrize("name", ["safe", "opse", "dope", "incumbent", "outside_agents:Mine"])
def test_an_unknown_option_is_an_error_that_names_it(name, outside):
    with pytest.raises(ValueError, match=r"has no option 'bolldness'; its options are"):
        build.make_agent(name, TABULAR, 100, {"bolldness": 2})


def test_agents_from_outside_get_their_options_and_no_others(outside):
    agent = build.make_agent("outside_agents:Mine", TABULAR, 100, {"boldness": 2.0})
    assert isinstance(agent, Agent) and agent.boldness == 2.0
    for option in ("replan", "constants", "multiplier", "C_u"):  # they were dropped in silence once
        with pytest.raises(ValueError, match=f"has no option '{option}'"):
            build.make_agent("outside_agents:Mine", TABULAR, 100, {option: 1})
    assert build.make_agent("outside_agents:Anything", TABULAR, 100, {"x": 1}).options == {"x": 1}
    reads = build.make_agent("outside_agents:Reads", TABULAR, 100, {"C_u": 7.0})
    assert reads.constants.C_u == 7.0
    with pytest.raises(ValueError, match="cannot import 'outside_agents:Nobody'"):
        build.make_agent("outside_agents:Nobody", TABULAR, 100, {})


def test_an_agent_that_cannot_play_a_problem_says_why():
    two = es.make("tabular", 0, num_constraints=2)
    with pytest.raises(ValueError, match="epsmix cannot play tabular"):
        build.make_agent("epsmix", two, 100, {})


def test_problems_by_name_or_by_module(outside):
    assert build.make_problem("outside_agents:problem", 3, {"size": 4}).task.num_states == 4
    with pytest.raises(ValueError, match="has no option 'sise'"):
        build.make_problem("outside_agents:problem", 3, {"sise": 4})
    with pytest.raises(ValueError, match="has no option 'sise'"):
        build.make_problem("tabular", 3, {"sise": 4})


# sweeps

TOML = """
title = "bonus"
episodes = 20
seeds = "0..1"

[[environment]]
name = "tabular"

[[agent]]
name = "opse"
C_u = [1.0, 2.0]

[[agent]]
name = "outside_agents:Mine"
boldness = 3.0
"""


def test_a_sweep_reads_toml_runs_what_is_missing_and_keeps_its_order(outside):
    (outside / "one.toml").write_text(TOML)
    sweep = Sweep.read("one.toml")
    assert len(sweep.jobs) == 6 and [job.seed for job in sweep.jobs] == [0, 0, 0, 1, 1, 1]
    assert sweep.run("out", workers=1) == {}
    records = sweep.records("out")
    settings = [one.settings["setting"] for one in records]
    assert settings == 2 * ["opse C_u=1.0", "opse C_u=2.0", "outside_agents:Mine boldness=3.0"]
    assert records[2].settings["boldness"] == 3.0  # what the record claims is what ran
    own = Job("tabular", "opse", 1, 20, (), (("C_u", 2.0),)).run()
    assert np.array_equal(own.reward_values, records[4].reward_values)
    kept = outside / "out" / "records" / sweep.jobs[0].name / "record.json"
    before = kept.stat().st_mtime_ns
    (outside / "out" / "records" / sweep.jobs[4].name / "record.json").unlink()
    done = []
    assert sweep.run("out", workers=1, on_done=lambda n, total: done.append((n, total))) == {}
    assert done == [(5, 6), (6, 6)] and kept.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("C_u =", "C_v =", "opse has no option 'C_v'"),
        ("boldness =", "replan =", "Mine has no option 'replan'"),
        ('name = "tabular"', 'name = "tabular"\nsise = 3', "tabular has no option 'sise'"),
        ("episodes = 20", "episode = 20", "unknown keys: episode"),
        ('seeds = "0..1"', 'seeds = "some"', "seeds must be whole numbers"),
        ('seeds = "0..1"', "", "lacks seeds"),
        ('name = "opse"', 'name = "opsy"', "no agent 'opsy'"),
        ("[[agent]]", "[agent]", "not a TOML file|write each agent"),
        ("episodes = 20", "episodes = 0", "episodes"),
    ],
)
def test_a_misspelt_sweep_fails_before_anything_runs(outside, old, new, said):
    (outside / "one.toml").write_text(TOML.replace(old, new))
    with pytest.raises(ValueError, match=said):
        Sweep.read("one.toml")


def test_jobs_that_fail_are_reported_and_the_others_finish(outside):
    jobs = (Job("tabular", "incumbent", 0, 5), Job("tabular", "incumbent", 0, 5, (("sise", 1),)))
    failures = Sweep("some", jobs).run("out", workers=1)
    assert list(failures) == [jobs[1].name] and "no option 'sise'" in failures[jobs[1].name]
    assert len(Sweep("some", jobs).records("out")) == 1
    with pytest.raises(ValueError, match="on must be 'local' or 'dask:ADDRESS'"):
        Sweep("some", (Job("tabular", "incumbent", 1, 5),)).run("out", on="moon")


@pytest.mark.slow
def test_a_sweep_runs_on_dask(outside):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        sweep = Sweep("some", (Job("tabular", "incumbent", 0, 5),))
        assert sweep.run("out", on=f"dask:{cluster.scheduler_address}") == {}
    assert len(sweep.records("out")) == 1


def test_agents_whose_bonus_was_scaled_say_so():
    record = Job("tabular", "optdual", 0, 5).run()
    assert record.settings["setting"] == "optdual bonus=0.01"
    assert Job("tabular", "optdual", 0, 5, (), (("bonus", 1.0),)).run().settings["setting"] == "optdual bonus=1.0"


# the paper and the benchmark


def test_the_papers_comparison_has_text_and_released_rules_with_published_constants():
    sweep = paper_sweep(quick=True)
    assert len(sweep.jobs) == 3 * (len(ENVIRONMENTS) * len(AGENTS) - 1)  # DOPE does not run on "linear"
    for variant in ("text", "released"):
        assert {f"OPSE ({variant})", f"Ghosh et al. ({variant})"} <= set(AGENTS)
    sweep.check()
    released = next(job for job in sweep.jobs if job.label == "OPSE (released)" and job.env == "linear")
    agent = build.make_agent(released.agent, es.make("linear", 0), 10, dict(released.agent_options))
    assert agent.constants == es.Constants.paper("linear") and agent.settings()["variant"] == "released"


def test_the_papers_table_has_published_text_and_released_columns():
    records = [Job("tabular", "opse", seed, 5, label="OPSE (text)").run() for seed in (0, 1)]
    mean = np.mean([one.regret()[-1] for one in records])
    row = next(line for line in published_table(records).splitlines() if "OPSE | regret | 1646" in line)
    shown = f"{mean:.0f}" if mean >= 100 else f"{mean:.2g}"
    assert row.startswith(f"| tabular | OPSE | regret | 1646 | {shown} ± ") and row.endswith("| – |")
    assert "after 5 episodes" in published_table(records)


def test_every_set_of_the_benchmark_makes_its_frozen_problems():
    for name in benchmark.SETS:
        assert benchmark.frozen_problem(benchmark.seeds(name)[3], name).origin["problem_set"].endswith(name)


@pytest.mark.parametrize("name", ["ring", "tabular-two", "linear-active-d20"])
def test_a_changed_problem_of_the_benchmark_is_refused(name, monkeypatch):
    seed = benchmark.seeds(name)[3]
    problem = benchmark.frozen_problem(seed, name)
    _, optimum, incumbent, active = benchmark.frozen()[name, seed]
    assert problem.optimal_value() == pytest.approx(optimum, rel=1e-9)
    assert active or name not in ("linear-active-d20", "ring")
    assert problem.evaluate(problem.task.incumbent)[0] == pytest.approx(incumbent, rel=1e-9, abs=1e-12)
    monkeypatch.setitem(benchmark.SETS, name, benchmark.ProblemSet("streaming"))
    with pytest.raises(es.DamagedLog, match="is not the frozen problem"):
        benchmark.frozen_problem(seed, name)


def test_rows_sum_up_runs_relative_to_the_incumbent(tmp_path):
    sweep = benchmark.benchmark([("incumbent", {}), ("optimum", {})], ["tabular", "streaming"], 2, 30)
    assert sweep.run(tmp_path, workers=1) == {}
    rows = {(row.set, row.agent): row for row in benchmark.rows(benchmark.results(sweep.records(tmp_path)))}
    assert len(rows) == 4
    for (_, agent), row in rows.items():
        expected = 1.0 if agent == "incumbent" else 0.0
        assert row.regret == pytest.approx(expected, abs=1e-9) and np.isnan(row.regret_low)  # two problems are too few
        assert row.half_way == (np.inf if agent == "incumbent" else 1) and row.violating == row.acting_below == 0
        assert row.incumbent == expected
    assert benchmark.write_results(sweep, tmp_path).stat().st_size < 1_000_000
    stated = tmp_path / benchmark.RESULTS
    assert benchmark.verify(stated, workers=1) == (1, [])
    told = json.loads(stated.read_text(), parse_constant=pytest.fail)  # neither Infinity nor NaN
    for one in told["results"]:
        one["regret"] += 0.01
    stated.write_text(json.dumps(told))
    assert len(benchmark.verify(stated, workers=1)[1]) == 1
    stated.write_text(json.dumps({"benchmark": benchmark.VERSION}))
    with pytest.raises(ValueError, match="is not a file of results"):
        benchmark.verify(stated, workers=1)
    with pytest.raises(ValueError, match="no problem set tubular"):
        benchmark.benchmark([("incumbent", {})], ["tubular"], 2, 30)


def test_the_interval_of_an_interquartile_mean_covers_it(rng):
    values = rng.standard_t(2, size=(300, 40))
    ends = [benchmark.interquartile_mean(one)[1:] for one in values]
    assert np.mean([low <= 0 <= high for low, high in ends]) > 0.97


def test_half_way_is_where_a_window_reaches_the_level():
    values = np.r_[np.zeros(50), np.ones(150)]
    assert benchmark.half_way(values, 0.5) == 41  # ten of twenty
    assert benchmark.half_way(np.zeros(200), 0.5) == np.inf


def test_the_reference_calls_tuned_settings_tuned_and_has_the_papers_algorithm():
    reference = benchmark.reference()
    assert {row.set for row in reference} == set(benchmark.SETS)
    by_name = {(row.set, row.agent) for row in reference}
    for name in ENVIRONMENTS:
        assert {(name, "opse"), (name, "opse-tuned"), (name, "ghosh")} <= by_name
    as_published = {name for name, one in benchmark.SETS.items() if one == benchmark.ProblemSet(name)} & {*ENVIRONMENTS}
    assert {row.set for row in reference if row.agent in ("opse", "ghosh")} == as_published
    for agent in {row.agent for row in reference}:
        build.known_agent(agent.split(" ")[0])  # raises if it cannot be run


# forecasts


def test_the_forecast_is_near_what_runs_need_or_says_that_it_cannot_tell():
    """benchmarks/forecast.py has more problems."""
    shop = es.make("inventory", 0)
    episodes = forecast.episodes_of(shop, 200, 0)
    found = forecast.forecast(shop.task, episodes, num_models=3)
    start, optimum = shop.evaluate(shop.task.incumbent)[0], shop.optimal_value()
    runs = [es.run(shop, es.SafeAgent(shop), 200, seed).reward_values for seed in range(3)]
    measured = np.median([forecast.half_way((one - start) / (optimum - start)) for one in runs])
    assert 1 / 2 < measured / found.half < 2 and "200 episodes" in found.text
    cliff = es.make("cliff", 0)
    told = forecast.forecast(cliff.task, forecast.episodes_of(cliff, 200, 0))
    assert np.isnan(told.half) and "cannot tell: " in told.text
    free = shop.task.with_limits(shop.task.thresholds.tolist(), [None])
    assert "cannot tell: the slack is unknown" in forecast.forecast(free, episodes).text


def test_gains_count_from_where_they_stay():
    assert forecast.half_way(np.r_[np.zeros(50), 0.6 * np.ones(150)]) == pytest.approx(57, abs=1)
    assert forecast.half_way(np.zeros(200)) == np.inf


def test_the_recommendation_is_hindsight_where_chance_is_told():
    inventory = es.make("inventory", 0)
    lines = forecast.recommend(inventory.task, forecast.episodes_of(inventory, 30, 0))
    assert lines[0].startswith("hindsight: half of the gain") and lines[1].startswith("recommended: hindsight")
    assert lines[2].startswith("what would help most: ")


def test_the_table_in_the_docs_is_that_of_the_stored_results(monkeypatch):
    root = Path(__file__).parent.parent
    monkeypatch.syspath_prepend(root / "benchmarks")
    table = importlib.import_module("reference").table(benchmark.reference())
    assert table in (root / "docs" / "research" / "benchmark.md").read_text()
