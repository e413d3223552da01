"""Episodes and policies in files and data frames."""

import sys

import numpy as np
import pytest

import episafe as es
from episafe.data.episodes import write_episodes
from test_session import AGENTS, GOOD, SEEN, SHOP, live


def same(one, other):
    return (
        np.array_equal(one.states, other.states)
        and np.array_equal(one.actions, other.actions)
        and np.allclose(one.rewards, other.rewards)
        and np.allclose(one.utilities, other.utilities)
        and one.trace == other.trace
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["observation", "hindsight", "rollout"])
def test_what_a_session_exports_is_read_again(name, ending, tmp_path, rng):
    problem = {"observation": SHOP, "hindsight": SEEN, "rollout": None}[name]
    session = es.open(tmp_path, AGENTS[name]())
    live(session, 6, rng, problem)
    path = tmp_path / f"episodes.{ending}"
    assert session.export(path) == 6
    read = es.read_episodes(path, session.task if problem is not None else None)
    for outcome, episode in zip(session.state.recent, read, strict=True):
        assert np.allclose(episode.total_utility, outcome.episode.total_utility)
        assert episode.total_reward == pytest.approx(outcome.episode.total_reward)
    if name == "hindsight":
        assert all(one.trace is not None and len(one.trace[1]) == problem.task.horizon for one in read)
    again = tmp_path / f"again.{ending}"
    write_episodes(again, read, session.task)
    if problem is not None:
        assert all(map(same, read, es.read_episodes(again, session.task)))


def test_data_frames_of_several_libraries_are_read(tmp_path, rng):
    pandas = pytest.importorskip("pandas")
    session = es.open(None, AGENTS["observation"]())
    live(session, 3, rng)
    session.export(tmp_path / "episodes.csv")
    frame = pandas.read_csv(tmp_path / "episodes.csv").sample(frac=1, random_state=0)  # rows in any order
    wanted = walks(es.read_episodes(tmp_path / "episodes.csv", SHOP))
    for given in (frame, pytest.importorskip("pyarrow").Table.from_pandas(frame), pytest.importorskip("polars")):
        given = given.from_dicts(frame.to_dict("records")) if given is sys.modules["polars"] else given
        assert walks(es.read_episodes(given, SHOP)) == wanted


def walks(episodes):
    return sorted((one.states.tolist(), one.actions.tolist(), one.total_reward) for one in episodes)


BROKEN = {
    "no rows": ("episode,step,action,state,next_state\n", "no rows"),
    "no action": ("episode,step,state,next_state\n0,0,0,1\n", "no column 'action'"),
    "a missing step": ("episode,step,action,state,next_state\n0,0,0,0,1\n0,2,0,0,1\n", "each once"),
    "a text": ("episode,step,action,state,next_state\n0,0,left,0,1\n", "not a finite number"),
    "a field too many": ("episode,step,action,state,next_state\n0,0,0,0,1,9\n", "one field per column"),
    "rows after the end": (
        "episode,step,action,state,next_state,terminated\n0,0,0,0,,1\n0,1,0,0,1,0\n",
        "terminated it",
    ),
    "too short": ("episode,step,action,state,next_state\n0,0,0,0,1\n", "length 4"),
    "no such state": ("episode,step,action,state,next_state\n" + "".join(f"0,{h},0,77,77\n" for h in range(4)), "77"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_with_its_place(what, tmp_path):
    text, message = BROKEN[what]
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(es.DamagedLog, match=message) as error:
        es.read_episodes(path, SHOP)
    assert "broken.csv" in str(error.value)


def test_policies_are_saved_and_loaded(tmp_path):
    schedule = es.StepPolicy(np.full((4, 3), 1 / 3), "uniform")
    for policy in (GOOD if isinstance(GOOD, es.Policy) else es.TablePolicy(GOOD, "good"), schedule):
        policy.save(tmp_path / "policy.json")
        loaded = es.load_policy(tmp_path / "policy.json")
        assert loaded.name == policy.name and type(loaded) is type(policy)
        for h in range(4):
            assert np.array_equal(loaded.probabilities(h, 2), policy.probabilities(h, 2))
    for text, message in (("{", "not a policy file"), ('{"kind": "x"}', "unknown"), ('{"kind": "table"}', "table")):
        (tmp_path / "policy.json").write_text(text)
        with pytest.raises(es.DamagedLog, match=message):
            es.load_policy(tmp_path / "policy.json")


def test_proposals_are_in_the_log_as_data_and_act_alike_when_read(tmp_path, rng):
    session = es.open(tmp_path, es.SafeAgent(SHOP))
    live(session, 30, rng)
    again = es.open(tmp_path, es.SafeAgent(SHOP))
    proposals = [name for name in session.state.policies if name.startswith("proposal-")]
    assert proposals
    for name in proposals:
        assert np.array_equal(session.state.policies[name].table(), again.state.policies[name].table())
