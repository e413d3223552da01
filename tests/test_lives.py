"""Random lives of sessions prove no more than what truly came of their deployments."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import episafe as es

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import lives
from test_journal_faults import _quick_disk  # noqa: F401

WORLDS = {"release": lives.Release, "observed": lives.Observed, "stock": lives.Stock}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_proved_that_the_truth_does_not_prove(tmp_path, world, seed):
    life = lives.Life(WORLDS[world], tmp_path / "shop", 7000 + seed)
    life.go_on(120)
    assert life.wrong == [] and len(life.issued) > 20


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_nor_in_long_ones(tmp_path, world):
    for seed in range(30):
        life = lives.Life(WORLDS[world], tmp_path / str(seed), seed)
        life.go_on(300)
        assert life.wrong == [], seed


def stock(num, seed=0):
    """A session with `Hindsight` after so many episodes, and its world."""
    rng = np.random.default_rng(seed)
    world = lives.Stock(rng)
    session = es.open(None, agent=world.build([]), false_alarm=0)
    for _ in range(num):
        made = session.deploy(rng)
        session.learn(world.play(made.plan, made.component, made.policy, rng)[0], deployment=made.id)
    return session, world, rng


@pytest.mark.parametrize("kept", [False, True])
def test_after_a_change_the_plan_of_before_is_deployed_no_more(kept):
    """Hindsight chooses weights now and then; in between a plan stayed in force below the new threshold."""
    session, _, rng = stock(60)
    before = session.deploy(rng)
    assert before.plan.source == "search"
    session.change("stricter", threshold=2.4)
    if kept:
        state = session.agent.state()
        session = es.open(None, agent=lives.Stock(rng).build([]), false_alarm=0)
        session.agent.restore(state)
        session.book.newest = before.plan.id
    plan = session.deploy(rng).plan
    assert plan.id == before.plan.id + 1 and (plan.source == "safe" or plan.utility_bound >= 2.4)
    name = next(name for name in plan.policy.names if name != "incumbent")
    session.withdraw(name, "recalled")
    assert name not in getattr(session.deploy(rng).plan.policy, "names", ())


def test_what_a_halted_session_was_told_is_no_log():
    """Busy days are never reported; taken for a log, the others certified an unsafe policy in 10 of 10 runs."""
    for seed in range(3):
        session, world, rng = stock(0, seed)
        session.halt("not yet")
        for _ in range(150):
            made = session.deploy(rng)
            episode, _ = world.play(made.plan, None, made.policy, rng)
            if sum(world.trace[1]) <= 3:
                session.learn(replace(episode, trace=world.trace), deployment=made.id)
        session.resume_exploring("now")
        policy = session.deploy(rng).plan.policy
        values = [world.cmdp.evaluate(one.policy)[1] for one in policy.components]
        assert np.array(policy.weights) @ values >= world.cmdp.task.threshold
        assert all(bound == 0 for name, bound in session.agent.bounds().items() if name != "incumbent")
