"""States: every agent in every world goes on from a file as if never stopped, and refuses what is not its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from conftest import constants
from episafe.storage import checkpoint
from stored import AGENTS, FINITE_AGENTS, WORLDS, by_tuples, pairs, same_plan, same_record, same_state, states_of

BEFORE, AFTER = 90, 60


def moved(state, folder):
    """The state by way of a file."""
    checkpoint.write(folder, state, {})
    return checkpoint.read(folder)[0]


@pytest.mark.parametrize(("world", "name", "build"), [pytest.param(*p, id=f"{p[0]}-{p[1]}") for p in pairs()])
def test_an_agent_goes_on_from_a_file_as_if_it_had_never_stopped(world, name, build, tmp_path):
    cmdp = WORLDS[world]()
    agent, again = build(cmdp.task), build(cmdp.task)
    es.run(cmdp, agent, BEFORE, seed=5)
    state = agent.state()
    again.restore(moved(state, tmp_path))
    same_state(again.state(), state)
    same_plan(again._plan, agent._plan, cmdp.task, states_of(world, cmdp.task))
    same_record(es.run(cmdp, again, AFTER, seed=6), es.run(cmdp, agent, AFTER, seed=6))
    same_state(again.state(), agent.state())
    same_plan(again.plan(), agent.plan(), cmdp.task, states_of(world, cmdp.task))
    assert again.fingerprint() == agent.fingerprint()


def test_the_agents_above_leave_the_incumbent():
    """Else their states would hold little."""
    left = {}
    for world, name, build in pairs():
        if world not in ("tabular", "tuples"):
            continue
        cmdp = WORLDS[world]()
        record = es.run(cmdp, build(cmdp.task), BEFORE, seed=5)
        left[name] = left.get(name, 0) + int((record.sources != "safe").any())
    assert min(left.values()) > 0, left


@pytest.mark.parametrize("certifier", [es.certify.Observation(0.1), es.certify.FreshData(0.1), es.certify.Box(0.1)])
def test_a_certificate_goes_on_over_trials_and_epochs(certifier, tmp_path):
    """As long as it takes for policies to come and go."""
    cmdp = es.make("tabular", seed=3)
    agent, again = (es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier) for _ in range(2))
    es.run(cmdp, agent, 620, seed=5)
    again.restore(moved(agent.state(), tmp_path))
    same_record(es.run(cmdp, again, 900, seed=6), es.run(cmdp, agent, 900, seed=6))
    same_state(again.state(), agent.state())


@pytest.mark.parametrize("name", ["opse observation", "opse fresh data"])
def test_late_reports_of_earlier_plans_count_the_same_after_a_restore(name, tmp_path):
    cmdp = es.make("tabular", seed=3)
    build, rng = {**AGENTS, **FINITE_AGENTS}[name], np.random.default_rng(8)
    agent, again = build(cmdp.task), build(cmdp.task)
    S, A, H = cmdp.task.num_states, cmdp.task.num_actions, cmdp.task.horizon
    late = []
    for k in range(300):
        plan = agent.plan()
        policy = plan.policy.draw(rng) if hasattr(plan.policy, "draw") else (None, plan.policy)
        states, actions = [cmdp.task.initial_state], []
        for h in range(H):
            actions.append(int(rng.choice(A, p=policy[1].table()[h, states[-1]])))
            states.append(int(rng.choice(S, p=cmdp.P[h, states[-1], actions[-1]])))
        late.append((es.Episode(states, actions, component=policy[0]), plan.id))
        if k % 3 == 0:
            agent.learn(*late.pop(int(rng.integers(len(late)))))
    again.restore(moved(agent.state(), tmp_path))
    for episode, plan_id in late:
        agent.learn(episode, plan_id)
        again.learn(episode, plan_id)
        assert agent.plan().id == again.plan().id
    same_state(again.state(), agent.state())
    assert agent.certificate.is_due() or agent.certificate._num_seen > 100


def test_a_new_process_goes_on_bit_for_bit(tmp_path):
    cmdp = es.make("linear", seed=3)
    agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))
    es.run(cmdp, agent, 200, seed=5)
    checkpoint.write(tmp_path, agent.state(), {})
    script = """
import sys, episafe as es
from episafe.storage import checkpoint
cmdp = es.make("linear", seed=3)
agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))
agent.restore(checkpoint.read(sys.argv[1])[0])
es.run(cmdp, agent, 200, seed=6).save(sys.argv[1])
checkpoint.write(sys.argv[1], agent.state(), {})
"""
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)
    same_record(es.Record.load(tmp_path), es.run(cmdp, agent, 200, seed=6))
    same_state(checkpoint.read(tmp_path)[0], agent.state())


def test_a_state_is_a_copy():
    cmdp = es.make("tabular", seed=3)
    agent = AGENTS["opse"](cmdp.task)
    es.run(cmdp, agent, 50)
    state = agent.state()
    kept = {name: array.copy() for name, array in state.items()}
    es.run(cmdp, agent, 50)
    same_state(state, kept)
    again = AGENTS["opse"](cmdp.task)
    again.restore(state)
    es.run(cmdp, again, 50)
    same_state(state, kept)


MAY_BE_NAN = ("lam", "lams", "utility_bound", "found", "promised", "deployed_bounds", "reward", "utility")


def changes(state):
    """What a state must not be: (entry, why, the state with that entry changed)."""
    for name, array in state.items():
        rest = {key: value for key, value in state.items() if key != name}
        kind = array.dtype.kind
        yield name, "missing", rest
        yield name, "renamed", {**rest, f"{name}x": array}
        yield name, "one axis more", {**rest, name: array[..., None]}
        yield name, "an object", {**rest, name: array.astype(object)}
        yield name, "a list", {**rest, name: array.tolist()}
        yield (
            name,
            "another type",
            {**rest, name: array.astype("<f4" if kind == "f" else "<f8" if kind in "iub" else "S")},
        )
        if array.size and array.ndim:
            yield name, "longer", {**rest, name: np.concatenate([array, array[-1:]])}
        if array.size and kind == "i":
            yield name, "negative", {**rest, name: np.where(np.arange(array.size).reshape(array.shape) == 0, -7, array)}
        if array.size and kind == "f":
            wrong = np.where(np.arange(array.size).reshape(array.shape) == array.size - 1, np.nan, array)
            if name.rsplit(".", 1)[-1] not in MAY_BE_NAN:
                yield name, "NaN", {**rest, name: wrong}
        if name.rsplit(".", 1)[-1] in ("state_of", "first", "following", "target", "components", "policies", "newest"):
            yield name, "out of bounds", {**rest, name: array + 2**40}
    yield "evil", "unknown", {**state, "evil": np.zeros(1)}


SOME = [
    ("tabular", "opse"),
    ("tabular", "opse observation"),
    ("tabular", "opse fresh data"),
    ("tabular", "opse box"),
    ("streaming", "dope"),
    ("linear", "opse"),
    ("drift cells", "opse"),
    ("drift features", "ghosh"),
    ("tuples", "uniform"),
]


@pytest.mark.parametrize(("world", "name"), SOME)
def test_what_is_not_a_state_is_refused_by_name_and_changes_nothing(world, name):
    cmdp = WORLDS[world]()
    agent, again = ({**AGENTS, **FINITE_AGENTS}[name](cmdp.task) for _ in range(2))
    es.run(cmdp, agent, 30, seed=5)
    es.run(cmdp, again, 10, seed=7)
    before, tried = again.state(), 0
    for entry, why, changed in changes(agent.state()):
        with pytest.raises(es.DamagedFile) as caught:
            again.restore(changed)
        named = [entry, f"{entry}x", *(["keys"] if entry.startswith("regression.key") else [])]
        assert any(name in str(caught.value) for name in named) or why in ("longer", "missing"), (entry, why)
        tried += 1
    same_state(again.state(), before)
    assert tried > 80


def test_the_state_of_another_agent_or_task_is_refused_with_what_differs():
    cmdp = es.make("tabular", seed=3)
    state = es.OPSE(cmdp.task, constants()).state()
    with pytest.raises(ValueError, match=r"C_u.*differ; build it as it was"):
        es.OPSE(cmdp.task, constants(C_u=0.7)).restore(state)
    with pytest.raises(ValueError, match="agent"):
        es.Ghosh2024(cmdp.task, constants()).restore(state)
    with pytest.raises(ValueError, match="what the task tells differ"):
        es.OPSE(es.make("tabular", seed=4).task, constants()).restore(state)
    for version, remedy in ((4, "update it"), (1, "learn what it knew again")):
        with pytest.raises(es.DamagedFile, match=remedy):
            es.OPSE(cmdp.task, constants()).restore({**state, "agent.version": np.array(version)})


def test_fingerprints_tell_settings_and_tasks_apart_and_nothing_else():
    cmdp, other = es.make("tabular", seed=3), es.make("tabular", seed=4)
    agent = es.OPSE(cmdp.task, constants())
    first = agent.fingerprint()
    es.run(cmdp, agent, 20)
    assert agent.fingerprint() == first == es.OPSE(es.make("tabular", seed=3).task, constants()).fingerprint()
    different = [
        es.OPSE(other.task, constants()),
        es.OPSE(cmdp.task, constants(C_r=0.31)),
        es.OPSE(cmdp.task, constants(), es.Doubling(0.3)),
        es.OPSE(cmdp.task, constants(), search=es.WarmStart()),
        es.OPSE(cmdp.task, constants(), num_safe_episodes=3),
        es.OPSE(cmdp.task, constants(), certifier=es.certify.Observation(0.1)),
        es.OPSE(cmdp.task, constants(), certifier=es.certify.Observation(0.2)),
        es.Fixed(cmdp.task, "uniform"),
        es.Fixed(cmdp.task, cmdp.task.safe_policy),
        es.Fixed(by_tuples().task, "uniform"),
        es.Fixed(by_tuples(slack=None).task, "uniform"),
    ]
    assert es.Fixed(by_tuples(slack=None).task, "uniform").fingerprint() == different[-1].fingerprint()
    assert len({first, *(one.fingerprint() for one in different)}) == 1 + len(different)


class Place:
    """Hashable, and known to nobody else."""


@pytest.mark.parametrize("state", [Place(), frozenset({1}), (1, float("nan")), (Place(), 2)], ids=range(4))
def test_states_that_cannot_be_stored_are_refused_with_those_that_can(state):
    task = by_tuples().task
    agent = es.OPSE(task, constants())
    agent.planner.regression._slot_of[1][state] = 0
    with pytest.raises(es.InvalidProblem, match="whole numbers, floats other than NaN, strings"):
        agent.state()


INDICES = """
import sys, numpy as np, episafe as es
from stored import AGENTS, WORLDS
rng, refused = np.random.default_rng(int(sys.argv[1])), 0
for world in ("tabular", "drift cells", "linear"):
    cmdp = WORLDS[world]()
    agent = AGENTS["opse observation"](cmdp.task)
    es.run(cmdp, agent, 80, seed=5)
    state = agent.state()
    names = [name for name, array in state.items() if array.dtype.kind == "i" and array.size]
    for _ in range(60):
        changed = {name: array.copy() for name, array in state.items()}
        array = changed[names[rng.integers(len(names))]]
        array.flat[rng.integers(array.size)] += rng.integers(-3, 40)
        again = AGENTS["opse observation"](cmdp.task)
        try:
            again.restore(changed)
        except es.DamagedFile:
            refused += 1
            continue
        es.run(cmdp, again, 3, seed=6)
print(refused)
"""


def test_no_number_in_a_state_leads_compiled_loops_astray():
    """Numbers changed at random: refused, or harmless; nothing is read or written out of bounds, and nothing hangs."""
    script = [sys.executable, "-c", INDICES, "3"]
    here = {"PYTHONPATH": f"{Path(es.__file__).parents[1]}:{Path(__file__).parent}"}
    done = subprocess.run(script, capture_output=True, text=True, timeout=100, env={**os.environ, **here})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60


@pytest.mark.parametrize("env", ["finite", "ball", "ellipsoid", "contexts"])
@pytest.mark.parametrize("kind", ["OPLBSP", "OFUL", "SafeLUCB", "ROFUL", "OPLB", "Incumbent"])
def test_a_bandit_agent_goes_on_from_a_file_as_if_it_had_never_stopped(env, kind, tmp_path):
    bandit = es.bandits.make(env, seed=4)

    def build():
        options = {"known_utility": bandit.evaluate(bandit.safe_policy())[1]} if kind == "OPLB" else {}
        made = getattr(es.bandits, kind)
        return made(bandit.task) if kind == "Incumbent" else made(bandit.task, 2000, radius=0.6, **options)

    try:
        agent, again = build(), build()
    except es.InvalidProblem:
        pytest.skip(f"{kind} refuses {env}")
    es.bandits.run(bandit, agent, 333, seed=7)
    state = agent.state()
    again.restore(moved(state, tmp_path))
    same_state(again.state(), state)
    same_record(*(es.bandits.run(bandit, one, 222, seed=7, first_round=333) for one in (again, agent)))
    same_state(again.state(), agent.state())
    before = again.state()
    for _, _, changed in changes(state):
        with pytest.raises(es.DamagedFile):
            again.restore(changed)
    same_state(again.state(), before)


def test_settings_in_a_state_are_readable():
    agent = es.OPSE(es.make("tabular").task, constants())
    said = json.loads(str(agent.state()["agent.settings"]))
    assert said["agent"] == "opse" and said["C_u"] == constants().C_u


def test_bounds_asked_of_a_restored_planner_are_as_pessimistic_as_before():
    cmdp = es.make("linear", seed=3)
    agent, again = (es.OPSE(cmdp.task, constants(C_u=0.5)) for _ in range(2))
    for k in range(40):
        agent.learn(es.Episode(np.full(cmdp.task.horizon + 1, k % cmdp.task.num_states), [k % 3] * cmdp.task.horizon))
    agent.plan()
    again.restore(agent.state())
    assert again.planner.utility_bound(2.0) == agent.planner.utility_bound(2.0)


def test_an_agent_that_does_not_say_how_it_is_stored_is_not_stored():
    class Forgetful(es.Fixed):
        _learned_state = es.Agent._learned_state

    with pytest.raises(NotImplementedError, match="_learned_state and _restore_learned"):
        Forgetful(es.make("tabular").task, "uniform").state()


def test_constants_for_any_number_of_episodes_are_those_of_the_epoch_after_a_restore(tmp_path):
    cmdp = es.make("tabular", seed=3)
    agent, again = (es.OPSE(cmdp.task, es.Constants.theory(cmdp.task, None), es.Doubling(0.3)) for _ in range(2))
    es.run(cmdp, agent, 2_500, seed=5)
    agent.plan()
    again.restore(moved(agent.state(), tmp_path))
    assert again.planner.constants_now == agent.planner.constants_now != agent.constants
    assert again.planner.scales == agent.planner.scales
    same_record(es.run(cmdp, again, 3_000, seed=6), es.run(cmdp, agent, 3_000, seed=6))
    same_state(again.state(), agent.state())
