"""Checks of what is kept: settings, fingerprints, states, stopped runs, sessions and their audits."""

import inspect
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import episafe as es
from episafe.testing.assertions import require, require_same_arrays, require_same_plans, require_same_records
from episafe.testing.check_fixtures import NUM_EPISODES, MakeAgent, ground_of, learn_by


def check_settings_are_plain(make_agent: MakeAgent, problem: Any) -> None:
    """What a record says of an agent is text and finite numbers, with its name and level."""
    settings = make_agent(problem.task).settings()
    for name, value in settings.items():
        plain = isinstance(value, str | int | float) and (isinstance(value, str) or not math.isnan(value))
        require(plain, f"settings() has {name} = {value!r}: text or a number can be kept with a record")
    require({"agent", "level"} <= settings.keys(), "settings() lacks 'agent' or 'level': records are sorted by them")


def check_settings_tell_the_arguments(make_agent: MakeAgent, problem: Any) -> None:
    """An agent that is built with another number for one argument of its constructor has other settings."""
    agent = make_agent(problem.task)
    names = list(inspect.signature(type(agent)).parameters)[1:]
    try:
        given = {name: value for name, value in agent.arguments().items() if name in names}
        kept = {name: given[name] if name in given else getattr(agent, name) for name in names}
    except AttributeError as error:
        raise AssertionError(
            f"{error}: keep what the constructor takes under its name, or override arguments()"
        ) from error
    for name, value in kept.items():
        for other in _others(value):
            try:
                changed = type(agent)(problem.task, **{**given, name: other})
            except (TypeError, ValueError):
                continue  # it cannot be that
            told = changed.settings() != agent.settings()
            require(told, f"settings() is the same with {name} = {value!r} and {other!r}, and runs of both look alike")


def _others(value: Any) -> list[Any]:
    """Other numbers than this one; none where it is no number."""
    if isinstance(value, bool):
        return [not value]
    return [value + 1, value / 2] if isinstance(value, float) else [value + 1] if isinstance(value, int) else []


def check_agents_built_alike_are_alike(make_agent: MakeAgent, problem: Any) -> None:
    """Two agents built alike have one fingerprint, and learning does not change it: files are recognised by it."""
    ground, agent = ground_of(problem), make_agent(problem.task)
    first = agent.fingerprint()
    require(make_agent(ground.task).fingerprint() == first, "the fingerprints of two agents built alike differ")
    list(learn_by(ground, agent, 5))
    require(agent.fingerprint() == first, "learning changes the fingerprint: settings() must not tell what was learned")


def check_state_goes_on_from_a_file(make_agent: MakeAgent, problem: Any) -> None:
    """An agent that is restored from a file goes on bit for bit as if it had never stopped."""
    ground = ground_of(problem)
    agent, again = make_agent(ground.task), make_agent(ground.task)
    es.run(problem, agent, NUM_EPISODES, 5)
    state = _state_or_fail(agent)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        np.savez(path, **state)
        with np.load(path, allow_pickle=False) as read:
            again.restore(dict(read))
    require_same_arrays(state, again.state(), "state() after restore() is another: give back all that was kept")
    require_same_plans(ground, agent.plan(), again.plan(), "a restored agent plans otherwise: state() lacks something")
    one, other = (es.run(problem, each, NUM_EPISODES, 6) for each in (agent, again))
    require_same_records(one, other, "a restored agent goes on otherwise: state() or restore() forgets something")
    require_same_arrays(agent.state(), again.state(), "after the same episodes the states differ: restore() forgets")


def check_state_is_a_copy(make_agent: MakeAgent, problem: Any) -> None:
    """What `state` gave stays as it is when the agent, or one that was restored from it, learns on."""
    ground = ground_of(problem)
    agent, again = make_agent(ground.task), make_agent(ground.task)
    es.run(problem, agent, 10, 5)
    state = _state_or_fail(agent)
    kept = {name: np.array(array) for name, array in state.items()}
    again.restore(state)
    for one in (agent, again):
        list(learn_by(ground, one, 10))
        require_same_arrays(kept, state, "learning changes a state that was handed out: copy arrays, both ways")


def check_stopped_run_goes_on(make_agent: MakeAgent, problem: Any) -> None:
    """A run with a folder that was stopped halfway ends with the record of one never stopped."""
    whole = es.run(problem, make_agent(problem.task), NUM_EPISODES, 7)
    with TemporaryDirectory() as folder:
        es.run(problem, make_agent(problem.task), NUM_EPISODES // 2, 7, folder=folder)
        joined = es.resume(folder, NUM_EPISODES, cmdp=problem, agent=make_agent(problem.task))
        require_same_records(whole, joined, "a run taken up differs from one never stopped: learn() must be repeatable")
        _require_whole(es.audit(folder, agent=make_agent(problem.task)))


def check_session_goes_on_and_is_audited(make_agent: MakeAgent, problem: Any) -> None:
    """Opened once more, a folder gives the plan that came next; its audit is whole and recomputes every plan."""
    ground, rng = ground_of(problem), np.random.default_rng(4)
    with TemporaryDirectory() as folder:
        bare = make_agent(ground.task)
        for _ in range(2):
            with es.open(folder, agent=make_agent(ground.task), sync="plans", false_alarm=0) as live:
                for _ in range(6):
                    plan, expected = live.plan(), bare.plan()
                    require_same_plans(ground, expected, plan, "a session plans otherwise than its agent")
                    args, plan_id = ground.play(plan, rng)
                    live.learn(*args, plan_id=plan.id)
                    bare.learn(*args, **plan_id)
        _require_whole(es.audit(folder, agent=make_agent(ground.task)))


def _state_or_fail(agent: Any) -> dict[str, Any]:
    try:
        return dict(agent.state())
    except NotImplementedError as error:
        raise AssertionError(f"{error}; or skip the checks of states") from error


def _require_whole(audit: Any) -> None:
    require(audit.is_whole, f"the audit finds damage: {'; '.join(audit.damage)}")
    require(audit.recomputed, "the audit recomputes no plan: hand over an agent that is built alike")
