"""States: every agent in every world goes on from a file as if it had never stopped, and refuses what is not its own."""

import pytest

import episafe as es
from episafe.runs import checkpoint
from stored import WORLDS, pairs, same_plan, same_record, same_state, states_of

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
        cmdp = WORLDS[world]()
        record = es.run(cmdp, build(cmdp.task), BEFORE, seed=5)
        left[name] = left.get(name, 0) + int((record.sources != "safe").any())
    assert min(left.values()) > 0, left
