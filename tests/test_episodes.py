"""Episodes of which only totals are known, and those that carry what chance brought: checked, kept, learned from."""

import numpy as np
import pytest

import episafe as es
from episafe.storage.json_values import as_text, from_text

PROPOSING = es.Constants.proposing()


def observing(task, constants=PROPOSING):
    return es.OPSE(task, constants, certifier=es.certify.Observation(delta=0.1))


def in_full(task, rng):
    """An episode of the incumbent on streaming, by hand: slow service, any states."""
    H = task.horizon
    return es.Episode(rng.integers(task.num_states, size=H + 1), np.full(H, 1))


def test_an_episode_of_totals_has_nothing_else():
    episode = es.Episode.of_totals(2.5, reward=1.0, component=1)
    assert (episode.total_utility, episode.total_reward, episode.component) == (2.5, 1.0, 1)
    assert episode.states is episode.actions is episode.rewards is episode.utilities is episode.trace is None


@pytest.mark.parametrize(
    ("episode", "says"),
    [
        (es.Episode(), "neither states and actions nor a total_utility"),
        (es.Episode(states=[0, 0, 0, 0, 0], total_utility=1.0), "belong together"),
        (es.Episode(actions=[0, 0, 0, 0], total_utility=1.0), "belong together"),
        (es.Episode.of_totals(np.nan), "must be finite"),
        (es.Episode.of_totals("much"), "must be a number"),
        (es.Episode.of_totals([1.0, 2.0]), "must be a number"),
        (es.Episode.of_totals(1.0, reward=np.inf), "must be finite"),
        (es.Episode([0] * 5, [1] * 4, utilities=[1.0] * 4, total_utility=3.0), "sum to 4.0"),
    ],
)
def test_totals_that_do_not_fit_are_refused_with_the_place(episode, says):
    task = es.make("streaming", 1).task
    with pytest.raises(es.InvalidEpisode, match=says):
        task.check_report(episode)


def test_totals_of_a_plain_plan_prove_what_the_episodes_in_full_prove():
    task, rng = es.make("streaming", 1).task, np.random.default_rng(0)
    whole, totals = observing(task), observing(task)
    for agent in (whole, totals):
        agent.certificate.wants_candidate = lambda: False  # the incumbent alone: a plan that is no mixture
    for _ in range(5):
        episode = in_full(task, rng)
        utility, reward = task.total("utility", episode), task.total("reward", episode)
        whole.learn(
            es.Episode(episode.states, episode.actions, total_utility=utility, total_reward=reward),
            plan_id=whole.plan().id,
        )
        totals.learn(es.Episode.of_totals(utility, reward), plan_id=totals.plan().id)
    np.testing.assert_array_equal(whole.certificate.ledger.trials.rewards, totals.certificate.ledger.trials.rewards)
    assert totals.certificate.num_episodes == 5
    assert (whole.num_learned, totals.num_learned) == (5, 0)  # totals teach no planner


def mixing(task):
    """An agent whose plan in force is a mixture."""
    agent = observing(task)
    while len(agent.plan().policy.components) == 1:
        agent.learn(in_full(task, np.random.default_rng(1)), plan_id=agent.plan().id)
    return agent


def test_totals_of_a_mixture_are_refused_and_change_nothing():
    agent = mixing(es.make("streaming", 1).task)
    before = agent.state()
    with pytest.raises(es.InvalidEpisode, match="does not show who may have acted: report its states and actions"):
        agent.learn(es.Episode.of_totals(3.0, component=1), plan_id=agent.plan().id)
    np.testing.assert_equal(agent.state(), before)


@pytest.mark.parametrize(
    ("certifier", "says"),
    [(es.certify.Model(), "certify nothing here"), (es.certify.FreshData(), "FreshData learns from transitions")],
)
def test_who_learns_from_transitions_refuses_totals(certifier, says):
    task = es.make("streaming", 1).task
    agent = es.OPSE(task, es.Constants.tuned(task), certifier=certifier)
    with pytest.raises(es.InvalidEpisode, match=says):
        agent.learn(es.Episode.of_totals(3.0), plan_id=agent.plan().id)


def test_totals_of_no_plan_are_refused():
    with pytest.raises(es.InvalidEpisode, match="say which plan was deployed"):
        observing(es.make("streaming", 1).task).learn(es.Episode.of_totals(3.0))


def test_monitors_watch_totals():
    task = es.make("linear", 1).task  # with features, of which totals say nothing
    agent, monitors = es.Fixed(task, "incumbent"), es.Monitors(task)
    monitors.watch(agent.plan(), es.Episode.of_totals(1.5))
    assert monitors.status()["incumbent"]["episodes"] == 1
    assert [alarm.what for alarm in monitors.watch(agent.plan(), es.Episode.of_totals(-1.0))] == ["range"]


def test_a_journal_says_of_an_episode_without_the_new_fields_what_it_always_said():
    task = es.make("streaming", 1).task
    episode = es.Episode([0] * 5, [1] * 4, component=0)
    assert task.report_values(episode) == [[0] * 5, [1] * 4, None, None, 0]
    assert task.report_from([[0] * 5, [1] * 4, None, None, 0]) == (episode,)


W = [3, 2.5, (1, "rain"), {"demand": 3, "prices": (0.5, None)}, np.array([1.0, 2.0]), np.int64(4), None, [1, 2]]


@pytest.mark.parametrize("w", W, ids=str)
def test_whatever_chance_may_be_comes_back_from_a_journal(w):
    task = es.make("streaming", 1).task
    episode = es.Episode([0] * 5, [1] * 4, trace=(0, (w, 1, 2, None)), total_utility=np.float64(4.0))
    (back,) = task.report_from(from_text(as_text(task.report_values(episode))))
    assert type(back.trace[1][0]) is type(w)
    np.testing.assert_equal(back.trace, episode.trace)
    assert back.total_utility == 4.0


def test_a_session_goes_on_from_totals(tmp_path):
    task = es.make("streaming", 1).task

    def new():
        agent = observing(task)
        agent.certificate.wants_candidate = lambda: False
        return agent

    with es.open(tmp_path, agent=new()) as session:
        for _ in range(3):
            deployed = session.deploy(np.random.default_rng(0))
            session.learn(es.Episode.of_totals(4.0, 1.0), deployment=deployed.id)
        head, sums = session.book.learned_hash, session.agent.certificate.ledger.trials.rewards.copy()
    with es.open(tmp_path, agent=new()) as again:
        assert again.book.learned_hash == head
        np.testing.assert_array_equal(again.agent.certificate.ledger.trials.rewards, sums)
        assert again.status().reported == 3
