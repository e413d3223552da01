"""The benchmark: frozen problems are what they were, agents are asked what they can do, nothing is compared twice."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
from typer.testing import CliRunner

import episafe as es
from episafe.benchmark import PROBLEM_SETS, measurement, problem_set, problem_sets, scaling
from episafe.benchmark import comparison as comparisons
from episafe.benchmark.comparison import agents_for, comparison, job, settings
from episafe.benchmark.results import (
    Row,
    Run,
    best_safe,
    from_csv,
    half_way,
    reference,
    reference_seconds,
    to_csv,
)
from episafe.cli import app
from episafe.experiments import worker_pool
from episafe.experiments.agent_choice import chosen_agent
from episafe.experiments.executors import Here, executor_on
from episafe.experiments.worker_pool import run_jobs
from episafe.problems.unknown_signals import UnknownSignals
from episafe.reports import benchmark_page
from test_sweep import Cluster, facts

SLOW_TO_DRAW = ("inventory", "battery", "cloud", "rover", "box")


@pytest.mark.parametrize("name", PROBLEM_SETS)
def test_a_sample_of_every_set_is_what_was_frozen(name):
    one = problem_set(name)
    for seed in (one.seeds[0],) if name in SLOW_TO_DRAW else (one.seeds[0], one.seeds[37], one.tuning_seeds[5]):
        assert problem_sets.is_close(one.freeze(seed), one.frozen(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEM_SETS)
def test_every_problem_is_what_was_frozen(name):
    one = problem_set(name)
    for seed in (*one.seeds, *one.tuning_seeds):
        assert problem_sets.is_close(one.freeze(seed), one.frozen(seed)), seed


def test_a_set_has_a_hundred_problems_to_report_on_and_others_to_tune_on():
    assert len({one.env for one in PROBLEM_SETS.values()}) >= 12
    assert {one.kind for one in PROBLEM_SETS.values()} == {
        "known signals", "learned signals", "two constraints", "small slack", "exogenous",
    }  # fmt: skip
    for one in PROBLEM_SETS.values():
        assert (len(one.seeds), len(one.tuning_seeds)) == (100, 20)
        assert not set(one.seeds) & set(one.tuning_seeds)
        known = [one.frozen(seed) for seed in (*one.seeds, *one.tuning_seeds)]
        assert len({(each.hash, each.incumbent_reward) for each in known}) == 120, f"{one.name} has a problem twice"
        gains = [one.frozen(seed).optimum - one.frozen(seed).incumbent_reward for seed in one.seeds]
        assert min(gains) >= max(one.least_gain, 0.03)


def test_problems_of_a_kind_are_of_that_kind():
    seed = {one.name: one.seeds[0] for one in PROBLEM_SETS.values()}
    assert problem_set("tabular-two").problem(seed["tabular-two"]).task.num_constraints == 2
    assert problem_set("inventory").problem(seed["inventory"]).task.is_exogenous
    assert problem_set("tabular-learned").problem(seed["tabular-learned"]).task.unknown == ("reward", "utility")
    for name in ("tabular-tight", "streaming-tight", "media-tight"):
        task = problem_set(name).problem(seed[name]).task
        assert task.slack <= 0.06 * (task.threshold + task.slack)


def test_a_problem_that_changed_is_refused(monkeypatch):
    one = problem_set("ring")
    monkeypatch.setattr(problem_sets, "DIGITS", 1)
    with pytest.raises(es.DamagedFile, match=r"episafe-bench-1 ring 41000 is not what was frozen"):
        one.problem(one.seeds[0])


def test_names_and_seeds_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="no problem set 'maze'; episafe-bench-1 has tabular, streaming"):
        problem_set("maze")
    with pytest.raises(ValueError, match="ring has no problem 7: it has 41000 to 41099 to report on"):
        problem_set("ring").problem(7)


def test_the_hash_sees_every_part_of_a_problem_and_not_its_last_bits():
    cmdp = es.make("linear", 3, num_states=6)
    task = cmdp.task
    told = {"P": cmdp.P, "reward": task.reward, "utility": task.utility, "phi": task.phi}
    rest = {"initial_state": task.initial_state, "threshold": task.threshold}
    hashed = problem_sets.problem_hash(es.LinearCMDP(**told, **rest))
    rounded = {**told, "reward": np.minimum(told["reward"] * (1 + 1e-15), 1)}
    assert problem_sets.problem_hash(es.LinearCMDP(**rounded, **rest)) == hashed
    for name in ("reward", "utility"):
        changed = {**told, name: told[name] * 0.999}
        assert problem_sets.problem_hash(es.LinearCMDP(**changed, **rest)) != hashed
    lower = {**rest, "threshold": 0.99 * task.threshold}
    assert problem_sets.problem_hash(es.LinearCMDP(**told, **lower)) != hashed


def test_whoever_is_told_no_signal_learns_it_and_is_judged_by_exact_values():
    listed = es.make("tabular", 3)
    untold = UnknownSignals(listed)
    table = es.TablePolicy(np.full(listed.task.reward.shape, 1 / 3))
    assert untold.evaluate(table) == listed.evaluate(table)
    mixture = es.MixturePolicy([table, listed.task.safe_policy], [0.25, 0.75])
    assert untold.evaluate(mixture) == pytest.approx(listed.evaluate(mixture), abs=1e-12)
    agent = es.OPSE(untold.task, es.Constants.proposing(), certifier=es.certify.Observation())
    record = es.run(untold, agent, 150)
    assert record.is_exact and record.optimum == listed.optimal_value()
    assert not record.violating().any()
    assert len(np.unique(record.reward_values)) > 3  # it left the incumbent
    with pytest.raises(ValueError, match="built for another problem"):
        es.run(untold, es.OPSE(listed.task, es.Constants.paper("tabular")), 5)


def test_a_run_without_told_signals_is_resumed_bit_for_bit(tmp_path):
    def agent():
        return es.OPSE(untold.task, es.Constants.tuned(untold.task))

    untold = UnknownSignals(es.make("streaming", 3))
    whole = es.run(untold, agent(), 80)
    es.run(untold, (again := agent()), 40)
    np.testing.assert_array_equal(whole.reward_values[:40], es.run(untold, agent(), 40).reward_values)
    saved = agent()
    saved.restore(again.state())
    np.testing.assert_array_equal(saved.plan().policy.probabilities(0, 0), again.plan().policy.probabilities(0, 0))


@pytest.mark.parametrize(("name", "able"), [("tabular-two", "several"), ("tabular-learned", "learned")])
def test_agents_that_are_left_out_of_a_kind_cannot_do_what_it_asks(name, able):
    one = problem_set(name)
    problem = one.problem(one.seeds[0])
    assert set(agents_for(one)) <= set(settings()[able])
    for agent in agents_for(problem_set("tabular")):
        if agent not in settings()[able]:
            assert has_nothing_to_say(agent, problem), agent


def test_an_agent_for_small_slack_or_exogenous_chance_is_run_there_alone():
    where = {
        name: [one.name for one in PROBLEM_SETS.values() if name in agents_for(one)] for name in settings()["only"]
    }
    assert where == settings()["only"]
    assert {PROBLEM_SETS[name].kind for name in where["opse-hindsight"]} == {"exogenous"}
    for name in where["opse-roomier"]:
        task = problem_set(name).problem(problem_set(name).seeds[0]).task
        assert task.slack / (task.threshold + task.slack) < 0.05


def has_nothing_to_say(agent, problem):
    """Whether an agent refuses a problem, or deploys nothing but the incumbent because it cannot plan."""
    try:
        record = es.run(problem, chosen_agent(agent, problem, 10), 5)
    except (ValueError, TypeError):
        return True
    return bool((record.sources == "safe").all())


def test_a_job_says_what_it_ran_and_how_large_the_agent_is():
    one = problem_set("streaming")
    record = job("optpess-lp", "streaming", one.seeds[3], 20).record()
    assert record.settings["problem_set"] == "episafe-bench-1/streaming"
    assert record.settings["seed"] == one.seeds[3]
    assert record.settings["state_bytes"] > 100
    assert record.optimum == pytest.approx(one.frozen(one.seeds[3]).optimum, abs=1e-9)


def test_what_takes_long_gets_fewer_problems_and_is_left_out_of_the_quick_one():
    seconds = {("stepmix", "queue"): 400.0, ("opse", "queue"): 0.5, ("epsmix", "queue"): 2.0, ("dope", "queue"): 40.0}
    quick, full = comparison(True, seconds), comparison(False, seconds)
    assert ("stepmix", "queue") not in quick.problems
    assert "slower than" in quick.left_out["stepmix", "queue"]
    assert full.left_out == {("stepmix", "queue"): "slower than 60 s a run"}
    counts = [full.problems[agent, "queue"] for agent in ("dope", "opse", "epsmix")]
    assert counts == [1, 100, 10]
    assert len({each.name for each in full.jobs()}) == len(full.jobs()) == sum(full.problems.values())


def test_half_of_the_way_is_where_a_mean_stays():
    values = np.concatenate([np.zeros(300), [1.0], np.zeros(199), np.ones(500)])
    assert half_way(values, 0.5) == pytest.approx(451, abs=1)  # of a window of 100, half
    assert half_way(values, 2.0) == np.inf
    assert half_way(np.ones(5), 0.5) == 1


def row(**changes):
    usual = dict(set="ring", agent="opse", episodes=300, problems=2, multiplier=1.0, violating=0, violating_share=0.0)
    usual |= dict(regret=0.5, regret_half_width=0.1, behind=0.0, behind_half_width=0.0, half_way=np.inf)
    return Row(**{**usual, "seconds": 0.1, "state_bytes": 2048.0, **changes})


def test_rows_are_written_and_read_back():
    rows = [row(), row(agent="ghosh", violating=2, behind=np.nan, half_way=12.0)]
    for ours, theirs in zip(rows, from_csv(to_csv(rows)), strict=True):
        np.testing.assert_equal(vars(ours), vars(theirs))


def test_the_best_agent_is_one_that_promises_not_to_violate_and_does_not():
    def run(regret, share=0.0):
        return Run(regret, share, 1.0, 0.1, 10)

    runs = {"opse": {1: run(0.5), 2: run(0.5)}, "dope": {1: run(0.1, 0.01), 2: run(0.1)}, "ghosh": {1: run(0.2)}}
    assert best_safe({**runs, "epsmix": {1: run(0.4), 2: run(0.3)}}) == "epsmix"  # ghosh promises nothing
    assert best_safe(runs) == "opse"
    assert best_safe({**runs, "incumbent": {1: run(0.5), 2: run(0.5)}}) == "incumbent"
    assert best_safe({"dope": runs["dope"]}) == ""


def test_exponents_are_those_of_a_power_law():
    found = scaling._fitted("S", scaling.LINES[0], [2, 4, 8], [[4.0, 16.0, 64.0], [1.0, 4.0, 16.0], [0, 1, 2]], [])
    assert (found.exponent, found.problems) == (pytest.approx(2.0), 2)


def test_the_poor_incumbent_leaves_as_much_to_gain_however_small_its_slack():
    seed = problem_set("tabular").seeds[0]
    gains, slacks = [], []
    for share in (0.4, 0.05):
        cmdp = scaling.poor_incumbent(seed, share)
        reward, utility = cmdp.evaluate(cmdp.task.safe_policy)
        gains.append(cmdp.optimal_value() - reward)
        slacks.append(utility - cmdp.task.threshold)
    assert gains[1] == pytest.approx(gains[0], rel=0.05)
    assert slacks[0] == pytest.approx(8 * slacks[1])


@pytest.fixture
def small(monkeypatch):
    """Two sets, three agents, twenty episodes, one axis; everything in this process."""
    sets = {name: PROBLEM_SETS[name] for name in ("streaming", "ring")}
    monkeypatch.setattr(comparisons, "PROBLEM_SETS", sets)
    monkeypatch.setattr(comparisons, "agents_for", lambda one: ["opse-observation", "ghosh", "incumbent"])
    said = {**settings(), "quick": {"problems": 2, "episodes": 20, "most_seconds": 9.0, "budget": 9.0}}
    monkeypatch.setattr(comparisons, "settings", lambda: said)
    monkeypatch.setattr(measurement, "QUICK_SCALING", (2, 20))
    monkeypatch.setattr(scaling, "AXES", {name: scaling.AXES[name] for name in ("1/ξ", "S")})
    monkeypatch.setattr(scaling, "LINES", scaling.LINES[:3])
    monkeypatch.setattr(worker_pool, "processes", lambda workers: nullcontext(Here()))


def test_the_command_makes_a_page_and_repeats_nothing(tmp_path, small):
    words = ["benchmark", "--out", str(tmp_path), "--json", "--latex"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert found["version"] == "episafe-bench-1" and not found["failed"]
    assert {(row["set"], row["agent"]) for row in found["rows"]} == {
        (name, agent) for name in ("streaming", "ring") for agent in ("opse-observation", "ghosh", "incumbent")
    }
    assert all(row["regret"] == pytest.approx(1.0) for row in found["rows"] if row["agent"] == "incumbent")
    page = (tmp_path / "benchmark.html").read_text()
    assert (
        "The frontier on fresh problems" in page
        and "Regret by 1/ξ" in page
        and "http:" not in page
        and "https:" not in page
    )
    assert r"\toprule" in (tmp_path / "results.tex").read_text()
    assert len(from_csv((tmp_path / "results.csv").read_text())) == 6
    again = CliRunner().invoke(app, words)
    assert json.loads(again.stdout)["rows"] == found["rows"]
    assert "0 runs made" in again.stderr
    frame = es.results(tmp_path / "records")
    assert len(frame) == 12 and set(frame.problem_set) == {"episafe-bench-1/streaming", "episafe-bench-1/ring"}


def test_the_page_says_what_differs_from_the_reference():
    from dataclasses import asdict

    ours, theirs = [row(), row(agent="ghosh", regret=0.9)], [row(), row(agent="ghosh"), row(agent="dope")]
    rows, reference = [asdict(one) for one in ours], [asdict(one) for one in theirs]
    page = benchmark_page.to_html(rows, reference, [], [], {"ring": ("known signals", "ring")}, {}, "two rows")
    assert "2 of 2 rows are in the reference" in page
    assert "1 of them differ: where the problems are the same ones in the fourth digit" in page
    assert "its theorem: zero violation" in page and "proved: zero" not in page  # at other multipliers it is not


def on_dask():
    """Four agents on three sets, two problems each."""
    agents = ("opse", "opse-observation", "optpess-lp", "triple-q")
    places = [
        (agent, one, seed)
        for one in ("streaming", "ring", "jobs")
        for seed in problem_set(one).seeds[:2]
        for agent in agents
    ]
    return [job(*place, 1000) for place in places]


@pytest.mark.slow
def test_dask_workers_give_the_same_bytes_even_if_two_of_three_are_killed(tmp_path):
    cluster, killed = Cluster(tmp_path, 3), []

    def on_done(one):
        if len(killed) < 2:
            killed.append(cluster.workers[len(killed)])
            killed[-1].kill()

    try:
        with executor_on(f"dask:{cluster.address}") as executor:
            assert run_jobs(on_dask(), tmp_path / "dask", on_done=on_done, executor=executor) == (0, {})
    finally:
        cluster.close()
    run_jobs(on_dask(), tmp_path / "here", executor=Here())
    for one in on_dask():
        assert facts(tmp_path / "dask" / one.name) == facts(tmp_path / "here" / one.name)


@pytest.mark.slow
def test_after_a_killed_scheduler_the_same_jobs_are_finished_and_none_is_made_twice(tmp_path):
    cluster, done = Cluster(tmp_path, 3), []

    def on_done(one):
        done.append(one.name)
        if len(done) == 5:
            cluster.scheduler.kill()

    try:
        with executor_on(f"dask:{cluster.address}") as executor:
            run_jobs(on_dask(), tmp_path / "dask", on_done=on_done, executor=executor)
    finally:
        cluster.close()
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "dask").glob("*/run.toml")}
    assert 5 <= len(stamps) < len(on_dask())
    assert run_jobs(on_dask(), tmp_path / "dask", executor=Here()) == (len(stamps), {})
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert len(es.load_records(tmp_path / "dask")) == len(on_dask())


def test_seconds_are_those_of_runs_of_about_the_same_length():
    """Agents that plan less and less often take less for an episode of a longer run."""
    rows = {row.place: row.seconds for row in reference()}
    for length in (300, 10_000):
        told = reference_seconds(length)
        compared = [(one, agent) for one, agent, episodes in rows if episodes == length]
        assert len(compared) > 100
        assert all(told[agent, one] == rows[one, agent, length] for one, agent in compared)
