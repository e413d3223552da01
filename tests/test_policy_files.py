"""Policies travel: files that come back equal, readers in other languages that act alike, hostile files refused."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from episafe.envs.large_linear import huge
from episafe.logs.tables import read_log
from episafe.storage.json_values import as_text
from gym_problems import WithCost

READERS = Path(__file__).parents[1] / "examples" / "readers"
sys.path.insert(0, str(READERS))
import policy_reader  # noqa: E402


def learned(problem, num_episodes=60):
    """The first proposal of an agent, a softmax policy."""
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())
    es.run(problem, agent, num_episodes)
    return agent.certificate.ledger.policies[1]


def lake(features, **told):
    """A Gymnasium problem whose rewards and utilities are learned, unless they are told."""
    env = WithCost(gym.make("FrozenLake-v1", is_slippery=True, max_episode_steps=5), lambda s, a, n: 0.1 * (a == 0))
    policy = lambda h, obs: [0.1, 0.3, 0.3, 0.3]  # noqa: E731
    return es.from_gymnasium(env, features=features, horizon=5, safe_policy=policy, slack=0.1, cost_limit=3.0, **told)


def coordinates(obs):
    return np.array([1.0, obs / 16, (obs % 4) / 4]) / 2


def told(h, obs):
    return np.linspace(0.1, 0.5, 4)


PROBLEMS = {
    "listed": lambda: es.make("tabular", seed=1),
    "listed features": lambda: es.make("linear", seed=1),
    "features": lambda: huge(1_000),
    "learned features": lambda: lake(coordinates),
    "cells": lambda: lake(es.features.OneHot()),
    "told cells": lambda: lake(es.features.OneHot(), reward=told, utility=told),
}


def states_of(problem):
    return [problem.task.initial_state, 1, 2, 3, 4]


def compare(policy, problem, act, tolerance=1e-12):
    for h in range(problem.task.horizon):
        for state in states_of(problem):
            np.testing.assert_allclose(policy.probabilities(h, state), act(h, state), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_saved_policy_acts_alike_and_is_saved_again_alike(name, tmp_path):
    problem = PROBLEMS[name]()
    policy, path = learned(problem), tmp_path / "policy.json"
    policy.save(path, certificate={"bound": 1.5})
    again = es.load_policy(path, features=problem.task)
    compare(policy, problem, again.probabilities)
    assert again.name == policy.name == "proposal-1" and again.certificate == {"bound": 1.5}
    again.save(tmp_path / "again.json", again.certificate)
    assert (tmp_path / "again.json").read_text() == path.read_text()


@pytest.mark.parametrize("name", ["listed", "features"])
def test_a_loaded_policy_survives_a_pickle(name, tmp_path):
    problem = PROBLEMS[name]()
    learned(problem).save(tmp_path / "policy.json")
    again = es.load_policy(tmp_path / "policy.json", features=problem.task)
    compare(again, problem, pickle.loads(pickle.dumps(again)).probabilities, 0)


@pytest.mark.parametrize("one_hot", [True, False])
def test_a_policy_of_several_utilities_that_are_told_acts_alike(one_hot, tmp_path):
    """The file did not say of which sum of utilities it was: every question at a state was an error."""
    cmdp = es.SampledCMDP(
        features=lambda state: np.eye(2) * 0.7, reward=lambda h, state: np.array([0.0, 1.0]),
        utility=[lambda h, state: np.array([1.0, 0.5 + state[0] / 8]), lambda h, state: np.array([0.5, 1.0])],
        sample=lambda h, state, action, rng: (int(rng.integers(3)), 0), horizon=3, num_actions=2, initial_state=(0, 0),
        threshold=[1.2, 1.2], slack=[0.1, 0.3], safe_policy=lambda h, state: [0.5, 0.5],
    )  # fmt: skip
    task = replace(cmdp.task, feature_function=None) if one_hot else cmdp.task
    cmdp.task = task
    agent = es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    es.run(cmdp, agent, 40)
    policy = agent.policy_named([name for name in agent.bounds() if name != "incumbent"][-1])
    policy.save(tmp_path / "policy.json")
    loaded, states = es.load_policy(tmp_path / "policy.json", features=task), [(0, 0), (2, 0), (7, 0)]
    for h in range(3):
        for state in states:
            np.testing.assert_allclose(loaded.probabilities(h, state), policy.probabilities(h, state), atol=1e-12)
    assert json.loads((tmp_path / "policy.json").read_text())["utility_weights"] == pytest.approx([0.75, 0.25])


def test_where_all_is_learned_a_function_is_enough_and_else_the_task_is_asked_for(tmp_path):
    problem, path = PROBLEMS["learned features"](), tmp_path / "policy.json"
    policy = learned(problem)
    policy.save(path)
    again = es.load_policy(path, features=lambda obs: np.kron(np.eye(4), coordinates(obs)))
    compare(policy, problem, again.probabilities)
    with pytest.raises(ValueError, match=r"give features=problem\.task, or the function state ↦ features"):
        es.load_policy(path)
    with pytest.raises(es.InvalidProblem, match="must have shape"):
        es.load_policy(path, features=lambda obs: [1.0]).probabilities(0, 0)
    with pytest.raises(ValueError, match="is of another task"):
        es.load_policy(path, features=PROBLEMS["features"]().task)
    learned(PROBLEMS["cells"]()).save(path)
    compare(learned(PROBLEMS["cells"]()), problem, es.load_policy(path, features=lambda obs: obs).probabilities)
    learned(PROBLEMS["told cells"]()).save(path)
    with pytest.raises(ValueError, match=r"give features=problem\.task$"):
        es.load_policy(path, features=lambda obs: obs)


def test_a_mixture_keeps_weights_names_and_components(tmp_path):
    problem = es.make("tabular", seed=3)
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())
    es.run(problem, agent, 150)
    mixture, path = agent.plan().policy, tmp_path / "mixture.json"
    mixture.save(path)
    again = es.load_policy(path)
    assert again.names == mixture.names and again.weights.tolist() == mixture.weights.tolist()
    for ours, theirs in zip(mixture.components, again.components, strict=True):
        np.testing.assert_array_equal(ours.table(), theirs.table())
    draws = [policy.draw(np.random.default_rng(7)) for policy in (mixture, again)]
    assert draws[0][0] == draws[1][0] and draws[0][1].name == draws[1][1].name
    draws[1][1].save(tmp_path / "component.json")
    assert es.load_policy(tmp_path / "component.json").name == draws[1][1].name


def test_code_is_not_saved_and_the_error_says_what_is(tmp_path):
    with pytest.raises(es.InvalidProblem, match="is code, and a file of a policy holds numbers"):
        lake(coordinates).task.safe_policy.save(tmp_path / "policy.json")
    with pytest.raises(es.InvalidProblem, match="certificate must be plain values"):
        es.make("tabular").task.safe_policy.save(tmp_path / "policy.json", {"bound": np.nan})
    assert not os.listdir(tmp_path)


# ---- readers in other languages


def questions(problem, said):
    """Every step and some states, as the readers ask: the state or its text, and what the task tells there."""
    task = problem.task
    for h in range(task.horizon):
        for state in states_of(problem):
            if said["kind"] == "table":
                yield h, state, state, None, None, None
                continue
            text = state if said["kind"] == "softmax" else as_text(task.key(state))
            phi = task.features(state).tolist() if said["kind"] == "softmax" else None
            signals = (task.reward_at(h, state), task.utility_at(h, state))
            yield h, state, text, phi, *(None if np.isnan(one).any() else one.tolist() for one in signals)


def saved(name, tmp_path):
    """A problem, its policy, what the file says, and what to ask; not at dummy states, which no reader meets."""
    problem = PROBLEMS[name]()
    policy, path = learned(problem), tmp_path / f"{name}.json"
    policy.save(path)
    said = json.loads(path.read_text())
    return policy, said, path, list(questions(problem, said))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_python_reader_acts_alike(name, tmp_path):
    policy, said, _, asked = saved(name, tmp_path)
    for h, state, *rest in asked:
        made = policy_reader.probabilities(said, h, *rest)
        np.testing.assert_allclose(made, policy.probabilities(h, state), rtol=0, atol=1e-12)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not here")
def test_the_javascript_reader_acts_alike(tmp_path):
    made = {name: saved(name, tmp_path) for name in PROBLEMS}
    mixture = es.MixturePolicy([made["listed"][0]] * 2, [0.25, 0.75], ["a", "b"])
    mixture.save(tmp_path / "mixture.json")
    script = f"""
      import {{ readFileSync }} from "node:fs";
      import {{ draw, probabilities }} from {json.dumps((READERS / "policy_reader.mjs").as_uri())};
      const asked = JSON.parse(readFileSync(0)), read = (path) => JSON.parse(readFileSync(path));
      const rows = asked.map(([path, list]) => list.map((one) => probabilities(read(path), ...one)));
      const mixture = read({json.dumps(str(tmp_path / "mixture.json"))});
      console.log(JSON.stringify([rows, [0, 0.24, 0.26, 1].map((uniform) => draw(mixture, uniform).name)]));
    """
    asked = [[str(path), [[h, *rest] for h, _, *rest in asked]] for _, _, path, asked in made.values()]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    rows, names = json.loads(done.stdout)
    assert names == ["a", "a", "b", "b"]
    for (policy, _, _, asked), found in zip(made.values(), rows, strict=True):
        for (h, state, *_), row in zip(asked, found, strict=True):
            np.testing.assert_allclose(row, policy.probabilities(h, state), rtol=0, atol=1e-12)


def test_the_readers_are_short_and_the_python_one_draws_by_the_weights():
    for path in READERS.iterdir():
        if path.name.startswith("policy_reader."):
            assert sum(bool(line.strip()) for line in path.read_text().splitlines()) <= 30
    mixture = {"kind": "mixture", "weights": [0.25, 0.75], "components": ["a", "b"]}
    assert [policy_reader.draw(mixture, uniform) for uniform in (0, 0.24, 0.26, 1)] == ["a", "a", "b", "b"]


@pytest.mark.parametrize("random_start", [False, True])
def test_a_state_that_is_an_array_is_found_as_a_tuple_too_and_the_reader_asks_for_texts(tmp_path, random_start):
    """Asked by what is no name of a row, both answered as for a state that nobody met."""
    name = {"tuple": ["<i8", {"tuple": [2]}, {"bytes": np.array([1, 2]).tobytes().hex()}]}
    text, rows = json.dumps(name, separators=(",", ":")), [[0.25, 0.75]]
    scales = {"C_r": 1, "utility_bonus": 0, "C_dagger": 0, "B_dagger": 0, "kappa": 1, "curve": 0, "spread": 0}
    said = {
        "episafe_policy": 1, "name": "", "certificate": {}, "kind": "rows", "horizon": 1, "num_actions": 2, "lam": 0.0,
        "scales": scales, "learned": ["reward", "utility"], "signal_scales": [0, 0], "outside": {}, "beta": 1.0,
        "bonus": 1.0, "rows": [{text: rows[0]}],
    }  # fmt: skip
    if random_start:
        first = {'{"outside":"start"}': [0.5, 0.5]}
        said |= {"horizon": 2, "outside": {"start": [0, 0]}, "rows": [first, {text: rows[0]}]}
    (tmp_path / "policy.json").write_text(json.dumps(said))
    policy = es.load_policy(tmp_path / "policy.json", lambda state: state)
    h = int(random_start)
    for state in (np.array([1, 2]), (1, 2), [1, 2], np.array([1, 2], dtype=np.int32)):
        assert policy.probabilities(h, state).tolist() == rows[0]
    assert policy.probabilities(h, (2, 1)).tolist() == [0.5, 0.5]
    assert policy_reader.probabilities(said, h, text) == rows[0]
    with pytest.raises(TypeError, match="by the text of a state"):
        policy_reader.probabilities(said, h, (1, 2))


# ---- hostile files


def hostile(said):
    """What a file may say instead, and what the refusal names."""
    yield b"\xff\xfe", "no JSON"
    yield b"[" * 100_000, "no JSON"
    yield b"[1]", "the policy is no object"
    yield b'{"kind": "table"}', "episafe_policy"
    for changes, names in [
        ({"episafe_policy": 2}, "update episafe"),
        ({"episafe_policy": True}, "no policy of episafe"),
        ({"kind": "pickle"}, "'pickle', not one of table"),
        ({"kind": ["table"]}, "'kind'"),
        ({"name": 3}, "'name'"),
        ({"certificate": []}, "'certificate'"),
        ({"horizon": 0}, "'horizon'"),
        ({"horizon": 10**12}, "'horizon'"),
        ({"num_states": 4.0}, "'num_states'"),
        ({"table": "x"}, "'table'"),
        ({"table": said["table"][:-1]}, "must have shape"),
        ({"table": [[[1e400]]]}, "'table'"),
        ({"table": np.full(np.shape(said["table"]), 0.5).tolist()}, "sums to"),
        ({"kind": "mixture", "components": [], "weights": []}, "'components'"),
        ({"kind": "mixture", "components": [{"kind": "mixture"}], "weights": [1]}, "no mixtures themselves"),
        ({"kind": "mixture", "components": [said], "weights": [0.5]}, "sums to"),
        ({"kind": "mixture", "components": [3], "weights": [1]}, "components 0"),
    ]:
        yield json.dumps(said | changes).replace("Infinity", "1e999").encode(), names
    yield json.dumps(said).replace("1.0", "NaN", 1).encode(), "NaN is no number"


def test_hostile_files_are_refused_by_name(tmp_path):
    path = tmp_path / "policy.json"
    es.make("tabular", seed=0).task.safe_policy.save(path)
    for data, names in hostile(json.loads(path.read_text())):
        path.write_bytes(data)
        with pytest.raises(es.DamagedFile, match=names) as caught:
            es.load_policy(path)
        assert str(path) in str(caught.value) and "save" in str(caught.value)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(es.DamagedFile, match="no regular file"):
        es.load_policy(path)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(es.DamagedFile, match="more than the"):
        es.load_policy(path)
    with pytest.raises(FileNotFoundError):
        es.load_policy(tmp_path / "nothing.json")


def test_hostile_softmax_policies_are_refused_by_name(tmp_path):
    path, problems = tmp_path / "policy.json", {kind: PROBLEMS[kind]() for kind in ("learned features", "cells")}
    changes = [
        ("learned features", {"scales": {}}, "C_r"),
        ("learned features", {"lam": -1.0}, "'lam'"),
        ("learned features", {"weights": 3}, "'weights'"),
        ("learned features", {"gram_inv": [[1.0]]}, "'gram_inv'"),
        ("learned features", {"theta": []}, "'theta'"),
        ("learned features", {"outside": {"elsewhere": [0, 0]}}, "'outside'"),
        ("cells", {"rows": []}, "'rows'"),
        ("cells", {"rows": [{"{}": []}] * 5}, "'rows'"),
        ("cells", {"rows": [{"0": [1.0, 1.0, 0.0, 0.0]}] * 5}, "sums to"),
        ("cells", {"beta": None}, "'beta'"),
    ]
    policies = {name: learned(problem, 5) for name, problem in problems.items()}
    for name, change, names in changes:
        policies[name].save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(es.DamagedFile, match=names):
            es.load_policy(path, features=lambda obs: np.kron(np.eye(4), coordinates(obs)))


# ---- what a session knows, and its episodes


def live(folder, problem, num=12, **agent):
    """A kept session with some episodes reported."""
    rng, task = np.random.default_rng(0), problem.task
    session = es.open(folder, agent=observing(task))
    for k in range(num):
        deployed = session.deploy(rng)
        episode = es.play(problem, deployed.policy, rng) if not task.is_listed else played(problem, deployed, rng)
        session.learn(episode, deployment=deployed.id, episode_id=f"=order {k}")
    return session


def observing(task):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation())


def played(problem, deployed, rng):
    task, states, actions = problem.task, [problem.task.initial_state], []
    for h in range(task.horizon):
        actions.append(deployed.policy.act(h, states[-1], rng))
        states.append(int(rng.choice(task.num_states, p=problem.P[h, states[-1], actions[-1]])))
    return es.Episode(states, actions)


def test_a_session_saves_a_policy_with_its_certificate(tmp_path):
    with live(tmp_path / "shop", es.make("tabular", seed=3)) as session:
        session.save_policy("proposal-1", tmp_path / "policy.json")
        said = es.load_policy(tmp_path / "policy.json").certificate
        assert said["bound"] == session.agent.bounds()["proposal-1"] and said["threshold"] == session.task.threshold
        assert (said["delta"], said["level"], said["head"]) == (0.05, "theorem", session.head)
        with pytest.raises(ValueError, match="no policy 'v9' is on trial: there are incumbent, proposal-1"):
            session.save_policy("v9", tmp_path / "policy.json")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["listed", "learned features"])
def test_a_journal_exports_what_learn_log_reads(name, suffix, tmp_path):
    problem, path = PROBLEMS[name](), tmp_path / f"episodes.{suffix}"
    with live(tmp_path / "shop", problem) as session:
        assert session.export_episodes(path) == 12
        task = session.task
    new = observing(task)
    assert es.learn_log(new, path) == 12 == new.num_learned
    old = es.open(tmp_path / "shop", agent=observing(task))
    np.testing.assert_array_equal(new.planner.information, old.agent.planner.information)
    old.close()
    with pytest.raises(ValueError, match="in memory"):
        es.open(None, agent=observing(task)).export_episodes(path)


def test_an_export_leaves_out_what_proves_nothing_where_it_was_reported(tmp_path):
    """Good days reported again by their plan, or as of no deployment: as a log 9 of 12 lives violated by them."""
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    agent = es.OPSE(problem.task, certifier=es.certify.Hindsight())
    with es.open(tmp_path / "shop", agent=agent) as session:
        logged = problem.task.replay(problem.task.safe_policy, problem.draw_trace(rng), rng)
        session.learn(logged)
        for _ in range(4):
            made = session.deploy(rng)
            day = problem.task.replay(made.policy, problem.draw_trace(rng), rng)
            session.learn(day, deployment=made.id)
            session.learn(day, plan_id=made.plan.id)
            session.learn(day)
        assert session.status().reported == 13 and session.export_episodes(tmp_path / "shop.csv") == 5


def test_an_export_is_in_the_order_of_deployments(tmp_path):
    """In that of reports the half of a log that judges could be the good days, which came late: 9 of 10 lives."""
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    days = []
    with es.open(tmp_path / "shop", agent=es.OPSE(problem.task, certifier=es.certify.Hindsight())) as session:
        deployed = [session.deploy(rng) for _ in range(5)]
        for made in deployed:
            days.append(problem.task.replay(made.policy, problem.draw_trace(rng), rng))
        for k in (3, 0, 4, 1, 2):
            session.learn(days[k], deployment=deployed[k].id)
        session.export_episodes(tmp_path / "shop.csv")
    read = list(read_log(tmp_path / "shop.csv", problem.task))
    assert [episode.trace[1] for episode in read] == [day.trace[1] for day in days]


def test_a_run_after_a_log_has_luck_of_its_own(tmp_path):
    """That of its seed may be in the log: its traces came again, and counted as new evidence."""
    problem = es.make("inventory", seed=0)
    build = lambda: es.OPSE(problem.task, certifier=es.certify.Hindsight())  # noqa: E731
    es.run(problem, build(), 30, folder=tmp_path / "run")
    es.export_episodes(tmp_path / "run", tmp_path / "run.csv")
    warm = build()
    es.learn_log(warm, tmp_path / "run.csv")
    es.run(problem, warm, 30, folder=None)
    chances = warm.certificate.traces
    first, second = (chances.beginning(60).totals(problem.task.safe_policy, k)[:30] for k in (0, 30))
    assert not np.array_equal(first, second)


def test_an_export_that_lacks_a_report_has_no_traces(tmp_path):
    """`Hindsight` would take the days that were reported for all days, and prove by the good ones."""
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    agent = es.OPSE(problem.task, certifier=es.certify.Hindsight())
    with es.open(tmp_path / "shop", agent=agent) as session:
        for _ in range(4):
            made = session.deploy(rng)
            session.learn(problem.task.replay(made.policy, problem.draw_trace(rng), rng), deployment=made.id)
        assert session.export_episodes(tmp_path / "whole.csv") == 4
        session.deploy(rng)
        with pytest.warns(UserWarning, match="1 episodes have no report of steps that is surely theirs"):
            assert session.export_episodes(tmp_path / "chosen.csv") == 4
    for name, traces in (("whole", 4), ("chosen", 0)):
        new = es.OPSE(problem.task, certifier=es.certify.Hindsight())
        assert es.learn_log(new, tmp_path / f"{name}.csv") == 4 and new.certificate.num_logged == traces


def test_an_export_of_totals_alone_has_no_traces(tmp_path):
    """Their days are no rows of the file, and which they are may depend on how they went: 12 of 12 lives violated."""
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    agent = es.OPSE(problem.task, certifier=es.certify.Hindsight())
    with es.open(tmp_path / "shop", agent=agent) as session:
        for k in range(4):
            made = session.deploy(rng)
            episode = problem.task.replay(made.policy, problem.draw_trace(rng), rng)
            session.learn(es.Episode.of_totals(1.0, 1.0) if k == 2 else episode, deployment=made.id)
        assert session.status().num_missing == 0
        with pytest.warns(UserWarning, match="1 episodes have no report of steps"):
            assert session.export_episodes(tmp_path / "chosen.csv") == 3
    new = es.OPSE(problem.task, certifier=es.certify.Hindsight())
    assert es.learn_log(new, tmp_path / "chosen.csv") == 3 and new.certificate.num_logged == 0


def test_an_export_of_reports_by_plan_has_traces_only_where_it_is_sure_of_which_deployment(tmp_path):
    """They came in an order that may depend on what they say, and stood in it: bounds were wrong in 6 of 6 lives."""
    problem, rng = es.make("inventory", seed=0), np.random.default_rng(0)
    agent = es.OPSE(problem.task, certifier=es.certify.Hindsight())
    with es.open(tmp_path / "shop", agent=agent) as session:
        session.halt("we only watch")

        def reported(plans):
            for plan in plans:
                session.learn(problem.task.replay(plan.policy, problem.draw_trace(rng), rng), plan_id=plan.id)

        for _ in range(3):
            reported([session.plan()])
        assert session.export_episodes(tmp_path / "one by one.csv") == 3
        reported([session.plan() for _ in range(3)])
        with pytest.warns(UserWarning, match="2 episodes have no report of steps"):
            session.export_episodes(tmp_path / "all at once.csv")
    for name, traces in (("one by one", 3), ("all at once", 0)):
        new = es.OPSE(problem.task, certifier=es.certify.Hindsight())
        assert es.learn_log(new, tmp_path / f"{name}.csv") and new.certificate.num_logged == traces


def test_a_run_and_a_folder_export_too_and_a_rollout_by_its_totals(tmp_path):
    problem = es.make("tabular", seed=1)
    es.run(problem, observing(problem.task), 30, folder=tmp_path / "run")
    assert es.export_episodes(tmp_path / "run", tmp_path / "run.csv") == 30
    assert es.learn_log(observing(problem.task), tmp_path / "run.csv") == 30
    agent = es.Rollout(0.5, 0.2, {"v2": "two"}, "one", utility_max=1.0)
    with es.open(tmp_path / "rollout", agent=agent) as session:
        deployed = session.deploy(np.random.default_rng(0))
        session.learn(es.Episode.of_totals(0.7, 0.2), deployment=deployed.id, episode_id="=1+1")
        assert session.export_episodes(tmp_path / "totals.csv") == 1
    with pytest.raises(ValueError, match=r"hand it over as task=agent\.task"):
        es.export_episodes(tmp_path / "rollout", tmp_path / "totals.csv")
    assert (tmp_path / "totals.csv").read_text().splitlines()[1].startswith("0,'=1+1,")


def test_a_rollout_with_several_constraints_exports_a_column_for_each(tmp_path):
    agent = es.Rollout([0.5, 0.4], [0.2, 0.2], {"v2": "two"}, "one", utility_max=1.0, names=("speed", "cost"))
    with es.open(tmp_path / "rollout", agent=agent) as session:
        deployed = session.deploy(np.random.default_rng(0))
        session.learn(es.Episode.of_totals([0.7, 0.6], 0.2), deployment=deployed.id)
        assert session.export_episodes(tmp_path / "totals.csv") == 1
    names, row = (line.split(",") for line in (tmp_path / "totals.csv").read_text().splitlines())
    assert names[3:] == ["total_utility_speed", "total_utility_cost", "total_reward"] and row[3:] == [
        "0.7",
        "0.6",
        "0.2",
    ]
