"""Policies of somebody else as candidates of `Box` and `FreshData`, which need no coin and no δ of their own."""

import numpy as np
import pytest

import episafe as es
from episafe.certify.shares import shares_of
from episafe.errors import InvalidEpisode
from episafe.problems.policy import Component, StepPolicy
from episafe.problems.states import ENDED


def agent_of(task, certifier):
    return es.OPSE(task, es.Constants.proposing(), certifier=certifier)


def two_arms():
    """One step, two actions: 0 is the incumbent's, 1 earns all and has a utility just above b."""
    P = np.ones((1, 1, 2, 1))
    reward, utility = np.array([[[0.0, 1.0]]]), np.array([[[1.0, 0.6]]])
    return es.LinearCMDP(P, reward, utility, threshold=0.5, safe_policy=np.array([[[1.0, 0.0]]]), slack=0.5)


def second(cmdp):
    table = np.zeros(cmdp.task.reward.shape)
    table[..., 1] = 1.0
    return es.TablePolicy(table)


@pytest.mark.parametrize("certifier", [es.certify.Box(0.05), es.certify.FreshData(0.05)])
def test_a_candidate_is_named_in_bounds_and_refused_twice(certifier):
    cmdp = two_arms()
    agent = agent_of(cmdp.task, certifier)
    agent.add_candidate("mine", second(cmdp))
    assert set(agent.bounds()) == {"incumbent", "mine"}
    with pytest.raises(ValueError, match="taken"):
        agent.add_candidate("mine", second(cmdp))
    with pytest.raises(TypeError, match="probabilities"):
        agent.add_candidate("else", print)


def test_the_box_proves_a_candidate_by_the_episodes_of_others():
    """A candidate added after 2,000 episodes has a bound at once, which is below its value and above nothing."""
    cmdp = es.make("streaming", seed=3)
    agent = agent_of(cmdp.task, es.certify.Box(0.05))
    es.run(cmdp, agent, num_episodes=2000, seed=0)
    uniform = es.TablePolicy(np.full(cmdp.task.reward.shape, 1 / cmdp.task.num_actions))
    agent.add_candidate("uniform", uniform)
    agent.plan()
    bound = agent.bounds()["uniform"]
    assert 0.2 * cmdp.evaluate(uniform)[1] < bound <= cmdp.evaluate(uniform)[1]


@pytest.mark.parametrize("certifier", [es.certify.Box(0.05), es.certify.FreshData(0.05)])
def test_states_hold_candidates(certifier):
    cmdp = es.make("streaming", seed=1)
    rng = np.random.default_rng(0)
    mine = es.TablePolicy(rng.dirichlet(np.ones(cmdp.task.num_actions), cmdp.task.reward.shape[:2]))

    def fresh():
        agent = agent_of(cmdp.task, certifier)
        agent.add_candidate("mine", mine)
        return agent

    one, other = fresh(), fresh()
    es.run(cmdp, one, num_episodes=700, seed=5)
    other.restore(one.state())
    assert other.bounds() == one.bounds()
    again = [es.run(cmdp, agent, num_episodes=600, seed=6) for agent in (one, other)]
    np.testing.assert_array_equal(again[0].utility_bounds, again[1].utility_bounds)
    np.testing.assert_array_equal(again[0].acting, again[1].acting)


def test_another_policy_under_the_name_of_one_on_trial_is_seen(tmp_path):
    """By a checkpoint a table of little use went on with the bound of the one before it. One that was withdrawn may be
    anything."""
    cmdp, rng = two_arms(), np.random.default_rng(0)

    def agent(action):
        agent = agent_of(cmdp.task, es.certify.Observation(0.05))
        agent.add_candidate("mine", es.TablePolicy(np.eye(2)[[[action]]]))
        return agent

    def lived(session, num):
        for _ in range(num):
            deployed = session.deploy(rng)
            action = int(deployed.policy.act(0, 0, rng))
            session.learn(es.Episode([0, 0], [action]), deployment=deployed.id)
        session._journal.checkpoint(session.parts)

    with es.open(tmp_path, agent(1)) as session:
        lived(session, 40)
        assert session.agent.bounds()["mine"] > 0.3
    with pytest.raises(es.DamagedFile):
        es.open(tmp_path, agent(0))
    with es.open(tmp_path, agent(1)) as session:
        assert session.agent.bounds()["mine"] > 0.3 and not session.status().faults
        session.withdraw("mine", "of no more use")
        lived(session, 1)
    with es.open(tmp_path, agent(0)) as session:
        assert "mine" not in session.agent.bounds() and not session.status().faults


def test_fresh_data_certifies_a_candidate_itself():
    """In its epochs the candidate is the proposal; once it is certified whole, its bound is below its value."""
    cmdp = two_arms()
    agent = agent_of(cmdp.task, es.certify.FreshData(0.05))
    agent.add_candidate("mine", second(cmdp))
    record = es.run(cmdp, agent, num_episodes=1500, seed=0)
    assert 0.5 <= agent.bounds()["mine"] <= 0.6
    assert record.utility_values.min() >= 0.5


def test_a_bad_candidate_is_never_certified():
    P = np.ones((1, 1, 2, 1))
    bad = es.LinearCMDP(
        P,
        np.array([[[0.0, 1.0]]]),
        np.array([[[1.0, 0.4]]]),
        threshold=0.5,
        safe_policy=np.array([[[1.0, 0.0]]]),
        slack=0.5,
    )
    for certifier in (es.certify.Box(0.05), es.certify.FreshData(0.05)):
        agent = agent_of(bad.task, certifier)
        agent.add_candidate("mine", second(bad))
        record = es.run(bad, agent, num_episodes=1500, seed=0)
        assert agent.bounds()["mine"] <= 0.4
        assert record.utility_values.min() >= 0.5 - 1e-12


def test_several_constraints_name_candidates_too():
    cmdp = es.make("tabular", seed=0, num_constraints=2)
    agent = agent_of(cmdp.task, es.certify.Box(0.05))
    mine = es.TablePolicy(cmdp.task.safe_policy.table() * 0.9 + 0.1 / cmdp.task.num_actions)
    agent.add_candidate("mine", mine)
    es.run(cmdp, agent, num_episodes=300, seed=0)
    assert (agent.bounds()["mine"] <= cmdp.evaluate(mine)[1]).all()


class Preferences:
    """Somebody's own policy: numbers that nobody divided by their sum, from a state on."""

    def __init__(self, scale, first=0):
        self.scale, self.first = scale, first

    def probabilities(self, h, state):
        return np.array([0.5, 0.5]) * (self.scale if state >= self.first else 1.0)


def two_functions(safe_policy):
    """Action 0 keeps the utility, 1 earns; states 0 and 1 by chance."""
    return es.SampledCMDP(
        horizon=2,
        num_actions=2,
        initial_state=0,
        features=lambda state: np.eye(2),
        reward=lambda h, state: np.array([0.0, 1.0]),
        utility=lambda h, state: np.array([1.0, 0.0]),
        sample=lambda h, state, action, rng: int(rng.random() < 0.5),
        threshold=1.2,
        safe_policy=safe_policy,
        slack=0.8,
    )


def test_a_candidate_that_is_no_distribution_is_refused_where_it_is_seen():
    task = two_functions(lambda h, state: np.array([1.0, 0.0])).task
    agent = agent_of(task, es.certify.Observation())
    with pytest.raises(es.InvalidProblem, match=r"sums to 4, not 1 .*: normalise it in float64"):
        agent.add_candidate("raw", Preferences(4.0))
    agent.add_candidate("raw", Preferences(1e6, first=1))
    session, rng = es.open(None, agent), np.random.default_rng(3)
    for _ in range(60):
        deployment = session.deploy(rng)
        if len(deployment.plan.policy.components) == 1:
            session.learn(es.Episode([0, 1, 0], [0, 0]), deployment=deployment.id)
            continue
        with pytest.raises(InvalidEpisode, match=r"who may have acted: policy 'raw' at step 1 sums to 1000000, not 1"):
            session.learn(es.Episode([0, 1, 0], [0, 0]), deployment=deployment.id)
    assert session.status().missing and not session.stopped and agent.bounds()["raw"] == 0
    with pytest.raises(es.InvalidProblem, match="policy 'raw' at step 0 sums"):
        agent.candidates["raw"].act(0, 1, rng)


class KnowsItsOwn:
    """A table of the states that it goes to itself."""

    def probabilities(self, h, state):
        return np.array({0: [0.0, 1.0]}[state])


def test_a_report_where_a_candidate_fails_is_refused_and_breaks_nothing():
    agent = agent_of(two_functions(lambda h, state: np.array([1.0, 0.0])).task, es.certify.Observation())
    agent.add_candidate("own", KnowsItsOwn())
    session, rng, refused = es.open(None, agent), np.random.default_rng(3), 0
    for _ in range(30):
        deployment = session.deploy(rng)
        try:
            session.learn(es.Episode([0, 1, 0], [0, 0]), deployment=deployment.id)
        except InvalidEpisode as error:
            assert "nobody can say who may have acted: KeyError: 1" in str(error)
            refused += 1
    assert refused and not session.stopped and session.status().num_missing == refused


class SinglePrecision(Preferences):
    """A network's answer: it sums to 1 up to the rounding of single precision, or exactly 1 in that."""

    ROW, FACTOR = [0.3, 0.7], 1 + 3e-7

    def probabilities(self, h, state):
        return np.array(self.ROW, dtype=np.float32) * np.float32(self.FACTOR)


@pytest.mark.parametrize("factor", [1 + 3e-7, 1])
def test_probabilities_of_single_precision_are_judged_as_they_act(monkeypatch, factor):
    monkeypatch.setattr(SinglePrecision, "FACTOR", factor)
    task = two_functions(SinglePrecision(1.0)).task
    row = task.safe_policy.probabilities(0, 0)
    assert row.sum() == pytest.approx(1, abs=1e-15) and row.dtype == np.float64
    agent = agent_of(two_functions(lambda h, state: np.array([1.0, 0.0])).task, es.certify.Observation())
    agent.add_candidate("network", SinglePrecision(1.0))
    session, rng = es.open(None, agent), np.random.default_rng(3)
    for _ in range(30):
        session.learn(es.Episode([0, 1, 0], [0, 0]), deployment=session.deploy(rng).id)
    assert not session.status().missing and agent.bounds()["network"] > 0


def test_an_incumbent_that_is_no_distribution_is_refused():
    with pytest.raises(es.InvalidProblem, match=r"policy at step 0 sums to 0.5"):
        two_functions(Preferences(0.5))
    late = two_functions(Preferences(0.5, first=1)).task.safe_policy
    with pytest.raises(es.InvalidProblem, match=r"policy at step 1 sums to 0.5"):
        late.probabilities(1, 1)


def test_actions_after_the_end_of_an_episode_take_no_part_in_shares():
    """Nobody acts there: a loop of one's own reports 0, and a policy by the step has all on 0 there."""
    gymnasium = pytest.importorskip("gymnasium")

    class Ends(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(4)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return 1, 0.0, True, False, {"utility": 1.0}

    problem = es.from_gymnasium(
        Ends(), horizon=8, features=es.features.OneHot(), threshold=0.6, slack=0.1,
        safe_policy=lambda h, state: np.full(4, 0.25),
    )  # fmt: skip
    sure = StepPolicy(np.eye(4)[[0] * 8])
    mixture = es.MixturePolicy([sure, problem.task.safe_policy], [0.5, 0.5], ["sure", "incumbent"])
    for filled in (0, 3):
        states = [problem.reset(), problem.step(0)[0], *[ENDED] * 7]
        assert states[1] is ENDED
        shares = shares_of(mixture, problem.task, states, [0] + [filled] * 7)
        assert shares == pytest.approx([0.8, 0.2], abs=1e-12)  # 1 against 1/4 in the one step that was acted in


@pytest.mark.parametrize("random_start", [False, True])
def test_a_mixture_is_refused_as_a_candidate_at_once(random_start):
    """From a random start it was taken, and the first report of it failed."""
    gymnasium = pytest.importorskip("gymnasium")
    made = es.from_gymnasium(
        gymnasium.make("FrozenLake-v1", max_episode_steps=5), horizon=5, features=es.features.OneHot(), threshold=0.1,
        slack=0.1, safe_policy=lambda h, state: np.full(4, 0.25), utility=lambda h, state: np.ones(4),
        random_start=random_start,
    )  # fmt: skip
    mixture = es.MixturePolicy([made.task.safe_policy] * 2, [0.5, 0.5], ["a", "b"])
    agent = es.OPSE(made.task)
    for given in (mixture, mixture.named("both"), made.task.as_policy(mixture)):
        with pytest.raises(TypeError, match="try each of these"):
            agent.add_candidate("both", given)
    assert not agent.candidates


def test_what_a_class_of_somebody_calls_act_is_not_asked_where_it_has_probabilities():
    """As of `act(h, state, deterministic=False)`: the generator came as a flag, and what was judged did not act."""

    class Greedy:
        def probabilities(self, h, state):
            return np.array([0.5, 0.5])

        def act(self, h, state, deterministic=False):
            return 1 if deterministic else 0

    rng = np.random.default_rng(0)
    drawn = [Component(Greedy(), "mine").act(0, 3, rng) for _ in range(200)]
    assert 60 < sum(drawn) < 140
    acts_alone = type("Alone", (), {"act": lambda self, h, state, rng: 1})()
    assert Component(acts_alone, "rollout").act(0, 3, rng) == 1


def test_an_object_that_draws_its_action_by_itself_is_refused_as_a_function_is():
    """Its shares were those of a second draw: 2 of 4 lives were below b."""
    rng = np.random.default_rng(0)
    drawing = type("Net", (), {"probabilities": lambda self, h, state: np.eye(2)[rng.integers(2)]})()
    asked = Component(drawing, "net")
    with pytest.raises(es.InvalidProblem, match="asked again"):
        for _ in range(20):
            asked.probabilities(0, 3)
    steady, calls = type("Net", (), {"probabilities": lambda self, h, state: calls.append(h) or [0.5, 0.5]})(), []
    mixture = es.MixturePolicy((Component(steady, "net"), StepPolicy([[0.5, 0.5]])), (0.5, 0.5), ("net", "incumbent"))
    for _ in range(1000):
        mixture.component(0).probabilities(0, 3)
    assert len(calls) == 1000 + 64 + 1000 // 64 - 1
