"""Records: facts of a run, what is derived from them, and their files."""

import json
import sys

import numpy as np
import pytest

import episafe as es
from episafe.simulation.record import NUM_SAMPLES, Record


def run(env="tabular", K=300, seed=0, **options):
    problem = es.make(env, seed, **options)
    return problem, es.run(problem, es.SafeAgent(problem), K, seed)


@pytest.fixture(scope="module")
def made():
    return run()


def test_the_contract_has_one_row_per_episode(made):
    problem, record = made
    K = 300
    for name in ("reward_values", "utility_values", "sources", "lams", "bounds", "acting"):
        assert getattr(record, name).shape == (K,), name
    assert record.regret().shape == record.violation().shape == (K,)
    assert record.weights.shape[0] == K and np.allclose(record.weights.sum(axis=1), 1.0)
    assert record.settings["certifier"] == "observation" and record.settings["env"] == "tabular"
    gaps = problem.optimal_value() - record.reward_values
    assert np.allclose(record.regret(), [gaps[: k + 1].sum() for k in range(K)])
    below = np.maximum(problem.task.thresholds[0] - record.utility_values, 0)
    assert np.allclose(record.violation(), [below[: k + 1].sum() for k in range(K)])


def test_several_limits_have_a_column_each():
    _, record = run(K=80, num_constraints=2)
    assert record.utility_values.shape == record.bounds.shape == record.violation().shape == (80, 2)
    assert record.limit_names == record.constraint_names and len(record.limit_names) == 2
    names = record.limit_names
    assert {f"bound_{name}" for name in names} <= set(record.to_frame().columns)
    assert record.violating().shape == (80,)


def test_the_history_says_what_was_proved_and_deployed(made):
    problem, record = made
    history = record.history
    assert history.names[0] == "incumbent" and len(history.episodes) == NUM_SAMPLES
    assert history.episodes[-1] == 300 and history.weights.shape == (NUM_SAMPLES, len(history.names))
    assert np.allclose(history.weights.sum(axis=1), 1.0)
    assert (history.bounds[:, 0, 0] == problem.task.stated_utilities[0]).all()
    for k, bounds, weights in zip(history.episodes, history.bounds, history.weights, strict=True):
        if weights[0] < 1:  # the bound of the mixture, as recorded, is at most what is proved after the episode before
            assert np.isfinite(bounds[weights > 0]).all()
            assert record.bounds[k - 1] >= problem.task.thresholds[0]


def test_the_history_does_not_change_the_run():
    problem = es.make("inventory", 1)
    one = es.run(problem, es.SafeAgent(problem), 150, seed=4)
    other = es.run(problem, es.SafeAgent(problem), 40, seed=4)  # other samples, other blocks
    for name in ("reward_values", "utility_values", "bounds", "plan_ids"):
        assert np.array_equal(getattr(one, name)[:40], getattr(other, name), equal_nan=True), name
    assert (one.acting[:40] == other.acting).all()


def test_totals_and_components_are_those_of_single_episodes(made):
    problem, record = made
    spread = record.utility_totals - record.utility_values
    assert abs(spread.mean()) < 4 * spread.std() / np.sqrt(len(spread))  # totals are samples of the values
    below = record.acting_below()
    b = problem.task.thresholds[0]
    values = dict(zip(record.acting_names, record.acting_utilities[:, 0], strict=True))
    alone = np.array([values.get(name, np.nan) for name in record.acting])
    known = np.isfinite(alone)
    assert known.any() and (below[known] == (alone[known] < b - 1e-9)).all()
    assert values.get("incumbent", problem.evaluate(problem.task.incumbent)[1]) == pytest.approx(
        problem.evaluate(problem.task.incumbent)[1]
    )


def test_save_and_load_give_the_same_record(made, tmp_path):
    _, record = made
    record.save(tmp_path / "one")
    again = es.Record.load(tmp_path / "one")
    for name, column in record.columns().items():
        assert np.array_equal(column, again.columns()[name], equal_nan=column.dtype.kind == "f"), name
    assert dict(again.settings) == json.loads(json.dumps(dict(record.settings)))
    assert again.history.names == record.history.names
    assert np.array_equal(again.history.bounds, record.history.bounds, equal_nan=True)
    assert (again.acting == record.acting).all() and repr(again) == repr(record)


@pytest.mark.parametrize("damage", ["cut", "swapped", "missing", "empty"])
def test_a_damaged_record_is_refused(made, tmp_path, damage):
    made[1].save(tmp_path)
    episodes, manifest = tmp_path / "episodes.npz", tmp_path / "record.json"
    if damage == "cut":
        episodes.write_bytes(episodes.read_bytes()[:-100])
    elif damage == "swapped":
        run(K=20)[1].save(tmp_path / "other")
        episodes.write_bytes((tmp_path / "other" / "episodes.npz").read_bytes())
    elif damage == "missing":
        episodes.unlink()
    else:
        manifest.write_text("{}")
    with pytest.raises(es.DamagedLog, match="does not hold a complete record"):
        es.Record.load(tmp_path)


def test_to_frame_has_the_names_of_policies_and_works_with_any_library_or_none(made, monkeypatch):
    _, record = made
    frame = record.to_frame()
    assert list(frame.columns[:4]) == ["episode", "plan_id", "source", "acting"] and len(frame) == 300
    assert {"utility_value", "bound", "reward_total", "utility_total"} <= set(frame.columns)
    assert frame["episode"].tolist() == list(range(1, 301))
    assert record.to_frame("pyarrow").column_names == list(frame.columns)
    for library in ("pandas", "polars", "pyarrow"):
        assert type(record.to_frame(library)).__module__.startswith(library)
        monkeypatch.setitem(sys.modules, library, None)
    assert list(record.to_frame()) == list(frame.columns)


def test_incumbent_acted_counts_draws_from_mixtures(made):
    _, record = made
    acted = record.incumbent_acted()
    assert (acted == (record.acting == "incumbent")).all()
    assert acted.sum() > (record.sources == "safe").sum()  # deployed in mixtures, too
    fixed = es.make("tabular", 0)
    alone = es.run(fixed, es.Fixed(fixed, "incumbent"), 10, 0)
    assert alone.incumbent_acted().all() and (alone.acting == "incumbent").all()


def machine(**names):
    """A machine that wears: action 1 runs fast and earns more; utility is 1 while the machine is not worn out."""
    return es.SampledCMDP(
        es.features.OneHot(size=4), lambda h, s: [0.4, 0.9], lambda h, s: [float(s < 3)] * 2,
        lambda h, s, a, rng: min(s + int(rng.random() < (0.5 if a else 0.1)), 3),
        horizon=5, num_actions=2, initial_state=0, threshold=4.0, slack=0.8,
        safe_policy=lambda h, s: [1.0, 0.0], **names,
    )  # fmt: skip


def test_exact_values_that_are_unknown_are_not_judged(tmp_path):
    problem = machine(units={"reward": "parts", "utility": "hours in order"})
    record = es.run(problem, es.SafeAgent(problem), 60, 0)
    assert not record.is_exact and np.isnan(record.utility_values).all() and np.isnan(record.optimum)
    assert np.isfinite(record.utility_totals).all() and record.acting_below() is None
    assert (record.unit("reward").text, record.unit("utility").text) == ("parts", "hours in order")
    with pytest.raises(ValueError, match="exact values of this record are unknown"):
        record.violating()
    record.save(tmp_path)
    assert np.isnan(Record.load(tmp_path).optimum)
