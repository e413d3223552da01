"""Where chance brings what the law of a simulation does not: `move` of the rules says what it does, and traces that it
cannot be asked about are refused."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import episafe as es
from episafe.envs.inventory import poisson
from episafe.errors import UnlistedChance
from episafe.learning.listed_traces import ListedTraces
from episafe.problems.rules import Rules, listed
from episafe.testing.assertions import require_same_arrays

THRESHOLD, SLACK = 3.0, 0.2


@dataclass(frozen=True)
class Kiosk(Rules):
    """Up to two loaves are left over; 0, 2 or 4 are baked; what was asked for is served or lost."""

    horizon: int = 4
    num_actions: int = 3
    shape: tuple[int, ...] = (3,)
    start: tuple[int, ...] = (0,)

    def move(self, h, state, action, luck):
        (demand,), loaves = luck, state[0] + 2 * action
        sold = min(loaves, demand)
        return (min(loaves - sold, 2),), (sold - 0.8 * action + 2) / 8, sold / demand if demand else 1.0

    def incumbent(self, h, state):
        return np.array([0.0, 0.0, 1.0])

    def chances(self, h, state):
        return [(range(6), poisson(2.0, 5))]


@dataclass(frozen=True)
class Guessed(Kiosk):
    """That more than three a day may come was never thought of; nothing else differs."""

    def chances(self, h, state):
        return [(range(4), poisson(2.0, 3))]


def problems():
    """The true problem, and the one whose law is a guess; the learner is told the same slack of both."""
    true = listed(Kiosk(), THRESHOLD, slack=SLACK)
    guessed = listed(Guessed(), THRESHOLD, slack=SLACK)
    assert true.state_names == guessed.state_names
    assert {w for (w,) in true.task.move.values} - {w for (w,) in guessed.task.move.values} == {4, 5}
    return true, guessed


def traces_of(problem, num, rng):
    found = [problem.draw_trace(rng) for _ in range(num)]
    assert any(w[0] > 3 for _, chances in found for w in chances)
    return found


def lived(session, task, traces, rng):
    for trace in traces:
        made = session.deploy(rng)
        session.learn(task.replay(made.policy, trace, rng), deployment=made.id)


def agent_of(problem):
    return es.OPSE(problem.task, certifier=es.certify.Hindsight())


def test_a_guessed_law_changes_nothing_that_replays_prove():
    true, guessed = problems()
    found = []
    for problem in (true, guessed):
        rng = np.random.default_rng(3)
        traces = traces_of(true, 60, rng)
        session = es.open(None, agent_of(problem))
        lived(session, problem.task, traces, rng)
        assert session.agent.refuted == "" and not session.status().faults
        found.append(session.agent.bounds())
    assert found[0] == found[1] and len(found[0]) > 1


def test_what_the_law_brings_at_other_steps_alone_is_replayed_too():
    """At step 1 nobody thought of a third customer."""

    @dataclass(frozen=True)
    class Quiet(Guessed):
        def chances(self, h, state):
            return [(range(3), poisson(2.0, 2))] if h == 1 else super().chances(h, state)

    true, quiet = problems()[0], listed(Quiet(), THRESHOLD, slack=SLACK)
    rng, session = np.random.default_rng(3), es.open(None, agent_of(quiet))
    traces = traces_of(true, 60, rng)
    assert any(chances[1] == (3,) for _, chances in traces)
    lived(session, quiet.task, traces, rng)
    assert session.agent.refuted == "" and not session.agent.certificate.traces.fault
    kept, policy = ListedTraces(true.task), true.optimal_policy()
    for trace in traces:
        kept.take_in(trace)
    np.testing.assert_array_equal(session.agent.certificate.traces.totals(policy), kept.totals(policy))


def test_one_of_several_constraints_is_replayed_too():
    """`of_constraint` takes along what says more than the arrays."""

    @dataclass(frozen=True)
    class Two(Guessed):
        names: tuple[str, ...] = ("served", "shelf")

        def move(self, h, state, action, luck):
            following, reward, served = super().move(h, state, action, luck)
            return following, reward, (served, 1 - following[0] / 2)

    move = listed(Two(), {"served": THRESHOLD, "shelf": 0.1}).task.of_constraint(1).move
    assert move(0, 0, 2, (5,)) == (0, pytest.approx(4.4 / 8), 1.0)
    assert listed(Guessed(), THRESHOLD).task.move(0, 0, 2, (5,)) == (0, pytest.approx(4.4 / 8), pytest.approx(0.8))


def test_an_audit_of_what_the_folder_cannot_replay_asks_for_the_agent(tmp_path):
    true, guessed = problems()
    rng = np.random.default_rng(3)
    with es.open(tmp_path, agent_of(guessed)) as session:
        lived(session, guessed.task, traces_of(true, 30, rng), rng)
        bounds = session.agent.bounds()
    alone, handed = es.audit(tmp_path), es.audit(tmp_path, agent=agent_of(guessed))
    assert alone.damage == [] and alone.recomputed is None and "hand the agent over" in alone.otherwise
    assert alone.checked == alone.num_plans
    assert handed.damage == [] and handed.recomputed == handed.num_plans and handed.otherwise == ""
    with es.open(tmp_path, agent_of(guessed)) as session:
        assert session.agent.bounds() == bounds


def refused(session, episode, made, match):
    """A report is refused, and nothing has changed."""
    before = session.agent.state()
    with pytest.raises(es.InvalidEpisode, match=match) as error:
        session.learn(episode, deployment=made.id)
    require_same_arrays(session.agent.state(), before, "refused, and the agent has changed")
    assert session.status().num_missing == 1 and not session.status().faults
    return error.value


@pytest.mark.parametrize("shape", (lambda w: w[0], lambda w: {"demand": w[0]}, lambda w: ()))
def test_a_trace_that_move_cannot_take_is_refused_and_can_be_mended(shape):
    _, guessed = problems()
    rng = np.random.default_rng(3)
    session = es.open(None, agent_of(guessed))
    made = session.deploy(rng)
    right = guessed.task.replay(made.policy, guessed.draw_trace(rng), rng)
    start, chances = right.trace
    wrong = replace(right, trace=(start, tuple(map(shape, chances))))
    refused(session, wrong, made, r"at step 0, .*move fails at what chance brought there.*or write None for it")
    session.learn(right, deployment=made.id)
    assert session.agent.refuted == "" and session.status().num_missing == 0


def test_a_refused_trace_stays_charged_at_its_worst():
    """Refused because of what it says, it counts as the worst, as one that never came: so refusing proves nothing."""
    _, guessed = problems()
    bounds = []
    for refuse in (True, False):
        rng, session = np.random.default_rng(3), es.open(None, agent_of(guessed))
        for k in range(40):
            made = session.deploy(rng)
            episode = guessed.task.replay(made.policy, guessed.draw_trace(rng), rng)
            if k != 20:
                session.learn(episode, deployment=made.id)
            elif refuse:
                wrong = replace(episode, trace=(None, tuple(w for (w,) in episode.trace[1])))
                refused(session, wrong, made, "move fails")
        bounds.append(session.agent.bounds())
    assert bounds[0] == bounds[1]


def test_without_the_rules_it_is_refused_and_none_stands_for_it(tmp_path):
    true, guessed = problems()
    guessed.save(tmp_path / "guessed.npz")
    read = es.LinearCMDP.load(tmp_path / "guessed.npz")
    rng = np.random.default_rng(3)
    session = es.open(None, agent_of(read))
    made = session.deploy(rng)
    trace = next(t for t in traces_of(true, 60, rng) if max(t[1])[0] > 3 and t[1][0][0] <= 3)
    episode = true.task.replay(made.policy, trace, rng)
    error = refused(session, episode, made, r"values of chance are such as \(\d,\)")
    assert isinstance(error, UnlistedChance)
    known = tuple(w if w[0] <= 3 else None for w in trace[1])
    session.learn(replace(episode, trace=(None, known)), deployment=made.id)
    assert session.agent.refuted == "" and session.status().num_missing == 0


def test_a_state_that_nobody_listed_is_named():
    @dataclass(frozen=True)
    class Shelf(Guessed):
        shape: tuple[int, ...] = (9,)

        def move(self, h, state, action, luck):
            following, reward, served = super().move(h, state, action, luck)
            return following if luck[0] < 4 else (7,), reward, served

    move = listed(Shelf(), THRESHOLD).task.move
    with pytest.raises(UnlistedChance, match=r"chance \(4,\) leads to \(7,\), where no value in `chances` leads"):
        move(0, 0, 0, (4,))


def test_a_function_that_fails_on_a_trace_refuses_it():
    def moved(h, state, action, w):
        (rent,) = w
        return state, 0.5, 1.0 if rent < 3 else 0.5

    station = es.SampledCMDP(
        features=lambda s: np.eye(2), reward=None, utility=None, sample=None, horizon=3, num_actions=2, initial_state=0,
        threshold=1.5, slack=0.5, safe_policy=lambda h, s: np.array([1.0, 0.0]), move=moved,
        chance=lambda h, past, rng: (int(rng.integers(5)),),
    )  # fmt: skip
    rng, session = np.random.default_rng(0), es.open(None, agent_of(station))
    made = session.deploy(rng)
    right = station.task.replay(made.policy, station.draw_trace(rng), rng)
    plain = replace(right, trace=(None, tuple(w for (w,) in right.trace[1])))
    refused(session, plain, made, r"move fails at what chance brought there, \d \(TypeError")
    session.learn(right, deployment=made.id)
    assert session.agent.refuted == ""
