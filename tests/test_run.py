"""The loop and its record."""

from dataclasses import replace

import numpy as np
import pytest

import episafe as es
from episafe.kernels.simulation import draw, running_sums, simulate
from episafe.reports.record_groups import first, notes, shared_keys
from episafe.reports.run_page import ShownRun, to_html
from episafe.runs import run as run_module
from episafe.runs.run import Simulation, loop, plain_loop
from episafe.storage.atomic_files import write_bytes
from episafe.testing.assertions import require_same_records


def record(**changes):
    facts = {
        "reward_values": np.array([1.0, 2.5, 2.0]),
        "utility_values": np.array([0.5, 0.9, 1.5]),
        "sources": np.array(["safe", "search", "safe"]),
        "lams": np.array([np.nan, 0.5, np.nan]),
        "utility_bounds": np.array([0.1, 1.0, 0.2]),
        "plan_ids": np.array([0, 1, 2]),
        "optimum": 2.0,
        "threshold": 1.0,
        "settings": {"env": 'a "quoted" name', "C_u": 0.5, "seed": 3},
    }
    return es.Record(**{**facts, **changes})


def test_metrics_by_hand():
    made = record()
    np.testing.assert_allclose(made.regret(), [1.0, 0.5, 0.5])
    np.testing.assert_allclose(made.violation(), [0.5, 0.6, 0.6])
    np.testing.assert_allclose(made.cancelling_violation(), [0.5, 0.6, 0.1])
    np.testing.assert_array_equal(made.safe_deployments(), [1, 1, 2])


def test_save_and_load_keep_every_fact(tmp_path):
    made = record()
    made.save(tmp_path / "run")
    again = es.Record.load(tmp_path / "run")
    for name in ("reward_values", "utility_values", "sources", "lams", "utility_bounds", "plan_ids"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    assert (again.optimum, again.threshold) == (2.0, 1.0)
    assert again.settings == made.settings
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["episodes.npz", "run.toml"]


def test_weights_of_no_mixture_are_ones_that_take_no_room(tmp_path):
    cmdp = es.make("tabular", 0)
    record = es.run(cmdp, es.Fixed(cmdp.task, "incumbent"), 30)
    assert record.weights.shape == (30, 1) and (record.weights == 1).all() and record.weights.strides == (0, 0)
    assert "weights" not in record.columns() and not record.mixed().any()
    record.save(tmp_path)
    again = es.Record.load(tmp_path)
    assert again.weights.shape == (30, 1) and again.columns() == record.columns()
    assert first(record, 10).weights.shape == (10, 1)


def test_a_record_is_never_half_old_and_half_new(tmp_path, monkeypatch):
    record().save(tmp_path)

    def crash(path, content):
        if path.name == "run.toml":
            raise OSError("the disk is full")
        write_bytes(path, content)

    monkeypatch.setattr("episafe.runs.record.write_bytes", crash)
    with pytest.raises(OSError, match="full"):
        record(threshold=9.0).save(tmp_path)
    with pytest.raises(es.DamagedFile, match="delete it and run again"):
        es.Record.load(tmp_path)


def test_flipped_and_missing_bytes_never_escape_as_other_errors(tmp_path):
    record().save(tmp_path)
    path = tmp_path / "episodes.npz"
    whole = path.read_bytes()
    rng, loaded = np.random.default_rng(0), 0
    for place in rng.integers(len(whole), size=300):
        torn = bytearray(whole)
        torn[place] ^= 0xFF
        path.write_bytes(torn)
        try:
            again = es.Record.load(tmp_path)
        except es.DamagedFile:
            continue
        loaded += 1  # a byte that carries nothing: what was read is whole
        np.testing.assert_array_equal(again.reward_values, record().reward_values)
    assert loaded < 150
    path.unlink()
    with pytest.raises(es.DamagedFile, match="delete it and run again"):
        es.Record.load(tmp_path)


def test_a_damaged_record_is_refused(tmp_path):
    record().save(tmp_path)
    (tmp_path / "run.toml").write_text("env = 'unfinished")
    with pytest.raises(es.DamagedFile):
        es.Record.load(tmp_path)
    (tmp_path / "episodes.npz").write_bytes(b"not a zip file")
    with pytest.raises(es.DamagedFile, match=r"episodes\.npz"):
        es.Record.load(tmp_path)


def test_settings_that_were_changed_or_are_of_another_run_are_refused(tmp_path):
    record().save(tmp_path / "a")
    record().noting(told=1).save(tmp_path / "b")
    text = (tmp_path / "b" / "run.toml").read_text()
    for wrong in (text, "", text.replace("told = 1", "told = 2")):
        (tmp_path / "a" / "run.toml").write_text(wrong)
        with pytest.raises(es.DamagedFile, match="was changed"):
            es.Record.load(tmp_path / "a")


def test_exact_values_belong_to_the_deployed_policies():
    cmdp = es.make("streaming", seed=1)
    agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"), es.Doubling(0.3))
    tables = []

    class Watched:
        task, settings, learn = agent.task, agent.settings, agent.learn

        def plan(self):
            tables.append(agent.plan().policy.table().copy())
            return agent.plan()

    made = es.run(cmdp, Watched(), num_episodes=120)
    values = np.array([cmdp.evaluate(table) for table in tables])
    np.testing.assert_array_equal(made.reward_values, values[:, 0])
    np.testing.assert_array_equal(made.utility_values, values[:, 1])
    compiled = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("streaming"), es.Doubling(0.3)), num_episodes=120)
    np.testing.assert_array_equal(compiled.utility_values, made.utility_values)
    assert made.plan_ids[-1] < 119


def test_exact_values_are_computed_only_when_the_policy_changed(monkeypatch):
    cmdp = es.make("tabular", seed=1)
    calls = []
    evaluate = cmdp.evaluate
    monkeypatch.setattr(cmdp, "evaluate", lambda policy: calls.append(1) or evaluate(policy))
    made = es.run(cmdp, es.DOPE(cmdp.task, es.Constants.paper("tabular", "dope"), es.Doubling(0.3)), num_episodes=300)
    assert len(calls) == made.plan_ids[-1] + 2 < 300  # every plan once, and the incumbent


def test_actions_and_transitions_have_streams_of_their_own():
    """A world has two streams that differ, and each draw takes one number from each."""
    cmdp = es.make("streaming", seed=1)
    made = Simulation(cmdp, es.Fixed(cmdp.task, "uniform"), 3, 11)
    list(plain_loop(made.world, made.session, made.columns))
    choices, transitions = made.world.luck.choices, made.world.luck.transitions
    fresh = [np.random.default_rng(s) for s in np.random.SeedSequence(11).spawn(2)]
    for stream in fresh:
        stream.random(3 * 4)
    assert transitions.random() == fresh[0].random()
    assert choices.random() == fresh[1].random()
    assert choices.random() != transitions.random()


def test_an_agent_of_another_problem_is_refused():
    cmdp, other = es.make("tabular", seed=1), es.make("tabular", seed=0)
    with pytest.raises(ValueError, match="built for another problem"):
        es.run(cmdp, es.OPSE(other.task, es.Constants.paper("tabular")), 5)


@pytest.mark.parametrize("played", [plain_loop, loop])
def test_the_agents_own_incumbent_is_what_is_deployed(played):
    cmdp = es.make("streaming", seed=1)
    cautious = np.zeros((4, 6, 2))
    cautious[..., 0], cautious[..., 1] = 0.05, 0.95
    task = replace(cmdp.task, safe_policy=es.TablePolicy(cautious))
    made = Simulation(cmdp, es.OPSE(task, es.Constants.paper("streaming")), 10, 0)
    list(played(made.world, made.session, made.columns))
    np.testing.assert_allclose(made.columns.facts.values[:, 1], 3.8)


def test_progress_is_told_after_the_first_plan_and_as_often_as_time_passes(monkeypatch):
    """Bars move while a slow agent plays, and records are the same bit for bit."""
    cmdp = es.make("streaming", seed=1)
    build = lambda: es.OptCMDPBonus(cmdp.task, 40, bonus=0.01)  # noqa: E731  # in the plain loop
    told = []
    silent = es.run(cmdp, build(), 40)
    monkeypatch.setattr(run_module, "TELL_EVERY", 0.0)
    require_same_records(es.run(cmdp, build(), 40, on_progress=told.append), silent, "the records differ")
    assert told == list(range(1, 41))
    monkeypatch.setattr(run_module, "TELL_EVERY", 1e9)
    told.clear()
    es.run(cmdp, build(), 40, on_progress=told.append)
    assert told == [1, 40]


def test_an_interrupted_run_keeps_what_was_learned():
    cmdp = es.make("streaming", seed=1)
    agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))

    reached = []

    def stop(done):
        reached.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        es.run(cmdp, agent, 10_000, on_progress=stop)
    assert agent.plan().id == reached[0] < 10_000
    assert agent.planner.regression.num_episodes == reached[0]


@pytest.mark.parametrize("argument", [{"seed": None}, {"seed": -1}, {"seed": 1.5}, {"num_episodes": 2.5}])
def test_seeds_and_lengths_are_whole_numbers(argument):
    cmdp = es.make("tabular")
    with pytest.raises(ValueError, match=next(iter(argument))):
        es.run(cmdp, es.Fixed(cmdp.task, "uniform"), **{"num_episodes": 5, **argument})


def test_numpy_numbers_are_saved_like_plain_ones(tmp_path):
    cmdp = es.make("tabular", seed=np.int64(3))
    cmdp.save(tmp_path / "problem.npz")
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular").replace(kappa=np.float64(0.1)))
    es.run(cmdp, agent, num_episodes=np.int64(5), seed=np.int64(3)).noting(extra=np.float32(2)).save(tmp_path / "run")
    assert es.Record.load(tmp_path / "run").settings["kappa"] == 0.1


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("build", [es.OPSE, es.Ghosh2024])
@pytest.mark.parametrize("replan", [es.Every(), es.Doubling(0.3)])
def test_the_compiled_loop_is_the_plain_loop_bit_for_bit(name, build, replan):
    """Facts, what was learned, and the plan in force afterwards; in two calls, so that resuming is covered too."""
    cmdp = es.make(name, seed=2)
    agents, facts = [], []
    for played in (plain_loop, loop):
        agent = build(cmdp.task, es.Constants.paper(name), replan)
        for num_episodes in (1, 260):
            made = Simulation(cmdp, agent, num_episodes, 7)
            list(played(made.world, made.session, made.columns))
            facts.append(made.columns.facts)
        agents.append(agent)
    for plain, compiled in zip(facts[:2], facts[2:], strict=True):
        for column, other in zip(plain, compiled, strict=True):
            np.testing.assert_array_equal(column, other)
    first, second = agents
    for mine, other in zip(first.planner.regression.model, second.planner.regression.model, strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(first.plan().policy.table(), second.plan().policy.table())
    assert first.plan().id == second.plan().id
    assert first.plan().source == second.plan().source


@pytest.mark.parametrize("policy", ["uniform", "incumbent"])
def test_the_loop_of_a_fixed_policy_is_the_plain_loop(policy):
    cmdp, made = es.make("linear", seed=2), []
    for played in (plain_loop, loop):
        agent = es.Fixed(cmdp.task, policy)
        run = Simulation(cmdp, agent, 700, 3)
        list(played(run.world, run.session, run.columns))
        made.append((*run.columns.facts, agent.plan().id, agent.is_used))
    for plain, fast in zip(*made, strict=True):
        np.testing.assert_array_equal(plain, fast)


def test_the_inverse_stays_that_of_a_fresh_factorisation():
    """After 2·10^4 episodes, refreshed on the way, Λ⁻¹ and ln det agree with numpy to 1e-9."""
    cmdp = es.make("linear", seed=3)
    agent = es.OPSE(cmdp.task, es.Constants.paper("linear"), es.Doubling(0.3))
    es.run(cmdp, agent, num_episodes=19_999)
    model = agent.planner.regression.model
    np.testing.assert_allclose(model.gram_inv, np.linalg.inv(model.gram), rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.log_det, np.linalg.slogdet(model.gram)[1], rtol=0, atol=1e-9)


def test_simulated_frequencies_are_the_probabilities():
    """10^5 episodes; five standard deviations of a frequency are below 0.008."""
    rng = np.random.default_rng(0)
    P, policy = rng.dirichlet(np.ones(3), (2, 3, 2)), rng.dirichlet(np.ones(2), (2, 3))
    kernel, running = running_sums(P), running_sums(policy)
    counts = np.zeros((2, 3, 2))
    states, actions = np.array([1, 0, 0]), np.zeros(2, dtype=np.int64)
    for _ in range(100_000):
        simulate(running, kernel, rng, rng, states, actions)
        counts[np.arange(2), states[:-1], actions] += 1
    cmdp = es.LinearCMDP(P, np.zeros((2, 3, 2)), np.ones((2, 3, 2)), initial_state=1, threshold=0.5)
    np.testing.assert_allclose(counts / 100_000, cmdp.occupancy(policy), atol=0.008)


def test_an_impossible_event_is_never_drawn():
    running = running_sums(np.array([0.0, 0.5, 0.0, 0.5, 0.0]))
    for uniform in (0.0, 0.25, 0.5, np.nextafter(1.0, 0.0)):
        assert draw(running, uniform) in (1, 3)
    tail = running_sums(np.array([0.3, 0.7 - 1e-12, 0.0]))  # rounded below 1, as a kernel within the tolerance may be
    assert draw(tail, np.nextafter(1.0, 0.0)) == 1


def test_the_settings_say_how_the_run_was_made():
    cmdp = es.make("tabular", seed=4)
    made = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("tabular")), num_episodes=5, seed=9)
    expected = {"env": "tabular", "seed": 4, "variant": "released", "agent": "opse", "C_u": 1.0, "run_seed": 9}
    assert expected.items() <= made.settings.items()
    assert {"episafe_version", "numpy_version", "seconds", "level", "replan"} <= made.settings.keys()


def test_a_run_needs_an_episode():
    cmdp = es.make("tabular")
    with pytest.raises(ValueError, match="num_episodes"):
        es.run(cmdp, es.Fixed(cmdp.task, "uniform"), num_episodes=0)


class Broken(es.OPSE):
    """An agent that cannot plan; as a subclass it runs in the plain loop."""

    def consider_candidate(self):
        raise FloatingPointError("no number")


@pytest.mark.parametrize("compiled", [False, True])
def test_planning_that_fails_deploys_the_incumbent_and_says_so_aloud(compiled, monkeypatch):
    cmdp = es.make("streaming", seed=0)
    agent = es.OPSE(cmdp.task) if compiled else Broken(cmdp.task)
    assert "planning_failed" not in es.run(cmdp, es.OPSE(cmdp.task), 5).settings
    monkeypatch.setattr(es.OPSE, "consider_candidate", Broken.consider_candidate)
    said = "5 of 5 episodes, because planning failed: FloatingPointError: no number"
    with pytest.warns(RuntimeWarning, match=f"the incumbent acted in {said}"):
        record = es.run(cmdp, agent, 5)
    assert record.settings["planning_failed"] == said
    assert set(record.sources) == {"safe"}
    assert notes([record, record])[0] == f"planning failed in 2 of 2 runs; the incumbent acted in {said}"
    assert "planning failed" in to_html("run", [ShownRun("run", record)]) and "planning_failed" not in shared_keys(
        [record]
    )
