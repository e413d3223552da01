"""Policies from elsewhere: by their interface here, and by the real libraries."""

import pickle
from contextlib import nullcontext
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import episafe as es
from episafe import adapters
from gym_problems import WithCost

NOT_LOCKED = "stable_baselines3 is no part of the lock: see CONTRIBUTING.md"


class Model:
    """What Stable-Baselines3 looks like from outside: a model over two observations, in single precision."""

    PROBS = np.array([[0.2, 0.7, 0.1], [1 / 3, 1 / 3, 1 / 3]], dtype=np.float32)

    def predict(self, observation, deterministic=False):
        assert deterministic and isinstance(observation, np.ndarray)
        return np.argmax(self.PROBS[int(observation)]), None

    @property
    def policy(self):
        modes = self.modes = []
        return SimpleNamespace(
            obs_to_tensor=lambda obs: (int(obs), False),
            get_distribution=self._distribution,
            set_training_mode=modes.append,
        )

    def _distribution(self, index):
        there = SimpleNamespace(numpy=lambda: self.PROBS[[index]])
        tensor = SimpleNamespace(detach=lambda: SimpleNamespace(cpu=lambda: there))
        return SimpleNamespace(distribution=SimpleNamespace(probs=tensor))


def nearest(obs):
    return 0 if obs < 8 else 2


def test_a_function_answers_with_an_action_or_with_probabilities():
    np.testing.assert_array_equal(adapters.function(nearest, 3).probabilities(4, 9), [0, 0, 1])
    np.testing.assert_array_equal(adapters.function(lambda obs: [0.5, 0.5], 2).probabilities(0, 9), [0.5, 0.5])
    assert pickle.loads(pickle.dumps(adapters.function(nearest, 3))).act(0, 9, np.random.default_rng(0)) == 2
    with pytest.raises(es.InvalidProblem, match="takes action 2, and there are 0 to 1"):
        adapters.function(nearest, 2).probabilities(0, 9)
    with pytest.raises(es.InvalidProblem, match="sums to"):
        adapters.function(lambda obs: [0.5, 0.6], 2).probabilities(0, 9)
    with pytest.raises(es.InvalidProblem, match="is code"):
        adapters.function(nearest, 2).save("nowhere")
    with pytest.raises(TypeError, match="given by a function"):
        adapters.function(3, 2)


@pytest.mark.parametrize("certifier", [None, es.certify.Observation(), es.certify.Box()])
def test_a_model_is_tried_where_states_are_listed_by_what_it_answers_in_each(certifier):
    """Also an object with probabilities alone; on trial is the table of its answers."""
    problem = es.make("shop" if certifier is None else "inventory")
    task, agent = problem.task, es.OPSE(problem.task, certifier=certifier)
    asked = adapters.function(lambda s: problem.state_names[s][0] % task.num_actions, task.num_actions)
    duck = SimpleNamespace(probabilities=lambda h, s: np.eye(task.num_actions)[h % 2])
    agent.add_candidate("model", asked)
    agent.add_candidate("duck", duck)
    table = agent.policy_named("model").table()
    assert all(table[3, s, name[0] % task.num_actions] == 1 for s, name in enumerate(problem.state_names))
    assert agent.policy_named("duck").table()[1, :, 1].all()
    assert not es.run(problem, agent, 5, seed=1).violating().any()
    with pytest.raises(es.InvalidProblem, match="sums to"):
        agent.add_candidate("wrong", SimpleNamespace(probabilities=lambda h, s: np.ones(task.num_actions)))


def test_the_adapters_are_there_by_the_usual_name():
    assert es.adapters is adapters


def test_stable_baselines3_by_its_interface():
    np.testing.assert_array_equal(adapters.stable_baselines3(Model(), 3).probabilities(0, 0), [0, 1, 0])
    model = Model()
    found = adapters.stable_baselines3(model, 3, deterministic=False).probabilities(0, 1)
    assert model.modes == [False]  # dropout is off, as in `predict`
    np.testing.assert_allclose(found, 1 / 3, rtol=1e-7)
    assert found.sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(TypeError, match="has 'predict'"):
        adapters.stable_baselines3(object(), 3)
    valued = SimpleNamespace(predict=None, policy=object())
    with pytest.raises(es.InvalidProblem, match="use deterministic=True"):
        adapters.stable_baselines3(valued, 3, deterministic=False).probabilities(0, 0)


@pytest.mark.parametrize(
    ("said", "matches"),
    [((1, (np.zeros(2),)), "remembers within an episode"), ((np.array([0.97]), None), "is no action")],
)
def test_a_model_that_remembers_or_has_no_actions_is_refused(said, matches):
    """Its memory was dropped at every step, 0.97 was cut to 0: what acted was another policy than the model."""
    model = SimpleNamespace(predict=lambda obs, deterministic: said, policy=None)
    with pytest.raises(es.InvalidProblem, match=matches):
        adapters.stable_baselines3(model, 2).probabilities(0, 0)


def test_a_regressor_is_no_policy_and_whole_classes_are():
    for said, row in ((0.95, None), (1.0, [0, 1])):
        policy = adapters.scikit_learn(SimpleNamespace(predict=lambda rows, y=said: np.array([y])), 2, True)
        if row is None:
            with pytest.raises(es.InvalidProblem, match="is no action"):
                policy.probabilities(0, 3.0)
        else:
            np.testing.assert_array_equal(policy.probabilities(0, 3.0), row)


def test_scikit_learn_by_the_real_library():
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 2))
    actions = np.where(inputs[:, 0] > 0, 3, 1)  # 0 and 2 are never seen
    classifier = LogisticRegression().fit(inputs, actions)
    policy = adapters.scikit_learn(classifier, 4)
    found = policy.probabilities(0, np.array([2.0, 0.0]))
    assert found[[0, 2]].tolist() == [0, 0] and found[3] > 0.9 and found.sum() == pytest.approx(1, abs=1e-15)
    best = adapters.scikit_learn(RidgeClassifier().fit(inputs, actions), 4, deterministic=True)
    np.testing.assert_array_equal(best.probabilities(0, np.array([-2.0, 0.0])), [0, 1, 0, 0])
    with pytest.raises(TypeError, match="use deterministic=True"):
        adapters.scikit_learn(RidgeClassifier(), 4)
    with pytest.raises(es.InvalidProblem, match="are not actions 0 to 1"):
        adapters.scikit_learn(classifier, 2).probabilities(0, np.zeros(2))


def lake(incumbent):
    env = WithCost(gym.make("FrozenLake-v1", is_slippery=True, max_episode_steps=5), lambda s, a, n: 0.1 * (a == 0))
    return es.from_gymnasium(
        env, features=es.features.OneHot(), horizon=5, safe_policy=incumbent, slack=0.1, cost_limit=3
    )


def test_an_incumbent_that_draws_its_own_actions_is_refused():
    """What it drew at a fixed start acted for ever: of 60 lives 6 had utility 0 for 2.4 promised."""
    rng = np.random.default_rng(0)
    for refused, share in ((True, 0.5), (True, 0.05), (False, 0.0)):
        told = adapters.function(lambda obs, share=share: 1 + int(rng.random() < share), 4)
        with pytest.raises(es.InvalidProblem, match="and asked again") if refused else nullcontext():
            problem = lake(told)
            es.run(problem, es.OPSE(problem.task), 40)


def test_an_adapted_policy_is_an_incumbent_and_a_candidate():
    problem = lake(adapters.function(lambda obs: 1 + int(obs) % 3, 4))
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())
    agent.add_candidate("theirs", adapters.function(lambda obs: np.roll([0.0, 0.5, 0.5, 0.0], int(obs) % 2), 4))
    record = es.run(problem, agent, 40)
    assert {"incumbent", "theirs"} <= set(record.acting)
    agent.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN"])
def test_stable_baselines3_by_the_real_library(name):
    library = pytest.importorskip("stable_baselines3", reason=NOT_LOCKED)
    how = {"learning_starts": 1, "buffer_size": 100} if name == "DQN" else {"n_steps": 64}
    model = getattr(library, name)("MlpPolicy", gym.make("FrozenLake-v1"), seed=0, device="cpu", **how).learn(64)
    policy = adapters.stable_baselines3(model, 4)
    for state in range(16):
        taken, _ = model.predict(np.asarray(state), deterministic=True)
        assert policy.probabilities(0, state)[int(taken)] == 1
    drawn = adapters.stable_baselines3(model, 4, deterministic=False)
    if name == "DQN":
        with pytest.raises(es.InvalidProblem, match="use deterministic=True"):
            drawn.probabilities(0, 3)
    else:
        assert drawn.probabilities(0, 3).sum() == pytest.approx(1, abs=1e-15)
        taken = [int(model.predict(np.asarray(3), deterministic=False)[0]) for _ in range(2000)]
        np.testing.assert_allclose(np.bincount(taken, minlength=4) / 2000, drawn.probabilities(0, 3), atol=0.05)
    problem = lake(adapters.function(lambda obs: 1, 4))
    agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())
    agent.add_candidate("theirs", policy)
    assert "theirs" in es.run(problem, agent, 40).acting


@pytest.mark.slow
def test_stable_baselines3_over_observations_that_are_arrays():
    library = pytest.importorskip("stable_baselines3", reason=NOT_LOCKED)
    model = library.PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=64, seed=0, device="cpu").learn(64)
    seen = np.array([0.1, -0.2, 0.05, 0.3])
    found = adapters.stable_baselines3(model, 2, deterministic=False).probabilities(0, seen)
    assert found.shape == (2,) and found.sum() == pytest.approx(1, abs=1e-15)
    assert adapters.stable_baselines3(model, 2).probabilities(0, seen).argmax() == found.argmax()
