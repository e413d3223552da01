"""Policies from elsewhere as policies of ours: a function of the observation, Stable-Baselines3, scikit-learn.

Each is an incumbent (`safe_policy=`) or a candidate (`agent.add_candidate`) for tasks of episodes. Nothing is imported
here: the model is asked by its own methods. `es.Rollout` needs no adapter, for it never asks what a policy does: there
anything that acts will do, also what is deterministic or remembers within an episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from episafe.checks import as_count, as_distributions
from episafe.errors import InvalidProblem
from episafe.problems.policy import Policy
from episafe.problems.states import ENDED, START
from episafe.types import Array

Answer = Callable[[Any], Any]  # observation ↦ an action, or the probabilities of all


@dataclass(frozen=True, eq=False)
class AdaptedPolicy(Policy):
    """A policy that does not count steps, given by what it answers to an observation.

    Attributes:
        answer: observation ↦ an action 0..A−1, or probabilities (A,).
        num_actions: A.
    """

    answer: Answer
    num_actions: int
    has_table = False
    is_checked = True

    def __post_init__(self) -> None:
        as_count("num_actions", self.num_actions)
        if not callable(self.answer):
            raise TypeError(f"a policy is given by a function of the observation, got {self.answer!r}")

    def probabilities(self, h: int, state: Any) -> Array:
        """π(·|state), shape (A,): all on one action where that is the answer; uniform where no environment runs."""
        if state is START or state is ENDED:
            return np.full(self.num_actions, 1 / self.num_actions)
        given = np.asarray(self.answer(state))
        if given.size == 1 and given.dtype.kind in "iu":
            return self._all_on(int(given.reshape(())))
        return as_distributions(f"policy at step {h}, state {state!r}", given, (self.num_actions,))

    def _all_on(self, action: int) -> Array:
        if not 0 <= action < self.num_actions:
            raise InvalidProblem(f"the policy takes action {action}, and there are 0 to {self.num_actions - 1}")
        row = np.zeros(self.num_actions)
        row[action] = 1.0
        return row

    def table(self) -> Array:
        """Not to be had: nobody lists the observations."""
        raise ValueError("a policy given by a function has no table of states: use probabilities(h, state)")


def function(answer: Answer, num_actions: int) -> AdaptedPolicy:
    """A policy by a function observation ↦ action, or observation ↦ probabilities (A,).

    Example:
        >>> from episafe import adapters
        >>> adapters.function(lambda obs: 1 if obs > 3 else 0, num_actions=2).probabilities(0, 5)
        array([0., 1.])
    """
    return AdaptedPolicy(answer, num_actions)


def stable_baselines3(model: Any, num_actions: int, deterministic: bool = True) -> AdaptedPolicy:
    """A policy by a trained model of Stable-Baselines3 with discrete actions.

    A recurrent model is refused at its first answer: what it does is no function of the observation. `es.Rollout` takes
    it as it is.

    Args:
        model: with `predict`, as PPO, A2C and DQN have it.
        num_actions: A.
        deterministic: True for the action of `predict`; False for the distribution of an actor-critic's policy.
    """
    for name in ("predict", "policy"):
        if not hasattr(model, name):
            raise TypeError(f"a model of Stable-Baselines3 has {name!r}, and {type(model).__name__} has not")
    return AdaptedPolicy(partial(_predicted if deterministic else _distribution, model), num_actions)


def _predicted(model: Any, observation: Any) -> Any:
    """The action that a model takes."""
    action, memory = model.predict(np.asarray(observation), deterministic=True)
    if memory is not None:
        raise InvalidProblem(
            f"{type(model).__name__} remembers within an episode, and a policy here knows its observation alone: put "
            "what it remembers into the state, or use es.Rollout"
        )
    return _whole(model, action)


def _whole(model: Any, answer: Any) -> Array:
    """The action that a model says, which must be one of 0, 1, 2, …: no part of a number is cut off."""
    given = np.asarray(answer)
    if given.size != 1 or given.dtype.kind not in "biuf" or not np.all(given == np.floor(given)):
        raise InvalidProblem(
            f"{type(model).__name__} says {answer!r}, which is no action: give a model of discrete actions, or "
            "adapters.function with a rule that makes an action of what it says"
        )
    return given.astype(np.int64)


def _distribution(model: Any, observation: Any) -> Array:
    """The probabilities of an actor-critic's policy."""
    policy = model.policy
    if not hasattr(policy, "get_distribution"):
        raise InvalidProblem(f"{type(model).__name__} has no distribution of actions: use deterministic=True")
    policy.set_training_mode(False)  # as `predict` does: no dropout
    tensor, _ = policy.obs_to_tensor(np.asarray(observation))
    found = np.asarray(policy.get_distribution(tensor).distribution.probs.detach().cpu().numpy(), dtype=np.float64)
    return normalised(found.reshape(-1))


def scikit_learn(
    classifier: Any, num_actions: int, deterministic: bool = False, row: Callable[[Any], Any] = np.ravel
) -> AdaptedPolicy:
    """A policy by a fitted classifier of scikit-learn, whose classes are actions.

    Args:
        classifier: with `predict_proba` and `classes_`, or with `predict` where it is deterministic.
        num_actions: A; actions that it never saw get probability 0.
        deterministic: True for the action of `predict`; False for the probabilities of `predict_proba`.
        row: observation ↦ its row of inputs, or a data frame of one row; by default its numbers in order.
    """
    needed = "predict" if deterministic else "predict_proba"
    if not hasattr(classifier, needed):
        remedy = "use deterministic=True" if needed == "predict_proba" else "give a classifier"
        raise TypeError(f"{type(classifier).__name__} has no {needed!r}: {remedy}")
    answer = partial(_class, classifier, row) if deterministic else partial(_classes, classifier, row, num_actions)
    return AdaptedPolicy(answer, num_actions)


def _class(classifier: Any, row: Callable[[Any], Any], observation: Any) -> Any:
    """The class that a classifier predicts."""
    return _whole(classifier, classifier.predict(_inputs(row(observation))))


def _classes(classifier: Any, row: Callable[[Any], Any], num_actions: int, observation: Any) -> Array:
    """The probabilities of its classes, which are actions."""
    probabilities, classes = np.zeros(num_actions), np.asarray(classifier.classes_)
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= num_actions:
        raise InvalidProblem(f"the classes {classes.tolist()} are not actions 0 to {num_actions - 1}")
    probabilities[classes] = classifier.predict_proba(_inputs(row(observation)))[0]
    return normalised(probabilities)


def _inputs(row: Any) -> Any:
    """A row of inputs as a table of one row; what is one already, as a data frame with its names, as it is."""
    return row if getattr(row, "ndim", 1) == 2 else np.asarray(row).reshape(1, -1)


def normalised(probabilities: Array) -> Array:
    """Probabilities of single precision, which sum to 1 up to 1e-6, made to sum to 1."""
    total = float(probabilities.sum())
    if not abs(total - 1.0) <= 1e-3:
        raise InvalidProblem(f"the probabilities of a model sum to {total:.6g}: it is no distribution")
    return probabilities / total
