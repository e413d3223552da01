"""The checks for outsiders find what is wrong, and say so in one sentence with a remedy."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import episafe as es

CLOCK, STARTS = itertools.count(), itertools.count()


class Right(es.Agent):
    """Deploys the actions that were seen most; nothing is wrong with it."""

    def __init__(self, problem):
        super().__init__(problem)
        self.counts = np.zeros((self.task.horizon, self.task.num_states, self.task.num_actions))

    def decide(self):
        table = (1 + self.counts) / (1 + self.counts).sum(axis=2, keepdims=True)
        return es.Plan(es.TablePolicy(table), "search", np.full(self.task.num_constraints, np.nan), self.level)

    def observe(self, episode):
        np.add.at(self.counts, (np.arange(self.task.horizon), episode.states[:-1], episode.actions), 1)


def wrong(**own):
    """Return an agent with some methods or facts replaced."""
    return type("Wrong", (Right,), own)


def deciding(**changed):
    """Return an agent whose plans differ from the right ones."""
    return wrong(decide=lambda self: replace(Right.decide(self), **{k: f(self) for k, f in changed.items()}))


class Half(es.TablePolicy):
    def table(self):
        return super().table() / 2


class Random(Right):
    def decide(self):
        self.counts[0, 0, 0] += next(CLOCK)
        return super().decide()


class Peeking(Right):
    def __init__(self, problem):
        super().__init__(problem)
        self.hint = lambda: problem


class Copying(Right):
    def __init__(self, problem):
        super().__init__(problem)
        self.model = {"P": np.array(problem.P)}


class Gullible(Right):
    def learn(self, episode, plan_id=None):
        if episode.states is not None and len(episode.actions) == self.task.horizon:
            super().learn(episode)


class Hasty(Right):
    def learn(self, episode, plan_id=None):
        self.counts[0] += 1
        super().learn(episode)


class Spoiling(Right):
    def learn(self, episode, plan_id=None):
        super().learn(episode)
        episode.actions[:] = 0


AGENTS = [
    (Random, "plan differently before episode 0: use no randomness"),
    (Peeking, "the agent can reach the problem: keep self.task only"),
    (Copying, "the agent can reach P: keep self.task only"),
    (Gullible, "accepts an episode with too few actions: write observe"),
    (Hasty, "plan differently before episode 1"),
    (Spoiling, "changed the arrays of the episode: copy them first"),
    (deciding(policy=lambda self: Half(self.task.incumbent.table())), "sum to 0.5: normalise"),
    (deciding(level=lambda self: "theorem"), "level 'theorem' and its agent 'heuristic': claim only what is proved"),
    (wrong(level="theorem"), "claims a theorem with the bounds .nan., below the limits"),
    (deciding(source=lambda self: "safe"), r"'safe' and deploys another policy: return self\.incumbent_plan"),
    (deciding(bounds=lambda self: np.nan), r"bounds of shape \(\): give one per limit, shape \(1,\)"),
    (deciding(policy=lambda self: self.task.incumbent.table()), r"type ndarray: return an es\.Policy"),
    (
        wrong(settings=lambda self: {"agent": "own", "counts": self.counts}),
        "is neither a text nor a number: records keep",
    ),
]


def test_right_agents_pass():
    es.testing.check_agent(Right)
    es.testing.check_agent(es.SafeAgent, es.make("streaming", seed=1))


@pytest.mark.parametrize(("agent", "message"), AGENTS)
def test_wrong_agents_are_found(agent, message):
    with pytest.raises(AssertionError, match=message):
        es.testing.check_agent(agent)


class Boastful(es.certify.Observation):
    """Deploys a candidate alone with the bound of the mixture."""

    def plan(self):
        plan = super().plan()
        return replace(plan, policy=plan.policy.components[0]) if isinstance(plan.policy, es.Mixture) else plan


class Forgiving(es.certify.Observation):
    """Counts a deployment only when its report has come."""

    def deployed(self, deployment, plan, component=None):
        self._plans[deployment] = plan

    def apply(self, deployment, evidence):
        super().deployed(deployment, self._plans[deployment], None)
        super().apply(deployment, evidence)


class Generous(es.certify.Observation):
    """Moves bounds when it is asked for evidence."""

    def evidence(self, deployment, episode):
        self.accounts.wealth.lower[1:] += 0.01
        return super().evidence(deployment, episode)


class Clocked(es.certify.Observation):
    """Counts more than was reported, in the first processes that use it."""

    def start(self, task):
        super().start(task)
        self.extra = float(next(STARTS) < 2)

    def apply(self, deployment, evidence):
        super().apply(deployment, replace(evidence, utilities=evidence.utilities + self.extra))


def spoiled_certifier(**own):
    """Return `Observation` with some methods replaced."""
    return type("Spoiled", (es.certify.Observation,), own)


def below(self):
    return replace(es.certify.Observation.plan(self), bounds=self.task.thresholds - 0.1)


CERTIFIERS = [
    (Boastful, "the audit of a session fails|have a false claim"),
    (Forgiving, "of 20 runs with lost reports have a false claim"),
    (Generous, r"evidence\(\) moved a bound: only apply"),
    (Clocked, "the audit of a session fails"),
    (spoiled_certifier(plan=below), "the audit of a session fails|have a false claim"),
    (spoiled_certifier(settings=lambda self: {"certifier": "own", "delta": 0.05}), r"settings\(\) has no .'statement'"),
    (spoiled_certifier(plan=lambda self: 1 / 0), "planning failed: ZeroDivisionError"),
    (spoiled_certifier(plan=lambda self: self.fallback("never")), "only the incumbent was deployed in 40 runs"),
]


@pytest.mark.parametrize("name", ["Observation", "Box", "FreshData"])
def test_right_certifiers_pass(name):
    es.testing.check_certifier(getattr(es.certify, name), num_runs=10)


@pytest.mark.parametrize(("certifier", "message"), CERTIFIERS)
def test_wrong_certifiers_are_found(certifier, message):
    with pytest.raises(AssertionError, match=message):
        es.testing.check_certifier(certifier)


def spoiled(name, value):
    """Return a problem with one thing changed behind the constructor's back."""
    problem = es.make("tabular", seed=0)
    owner, _, field = name.rpartition(".")
    vars(problem.task if owner else problem)[field] = value(problem)
    return problem


class ByClock(es.SampledCMDP):
    def step(self, h, state, action, rng):
        rng.random(next(CLOCK) % 7)
        return super().step(h, state, action, rng)


def sampled(kind=es.SampledCMDP):
    return kind(
        features=lambda state: np.eye(2), reward=lambda h, state: [0.2 + 0.1 * state, 0.9],
        utility=lambda h, state: [1.0, 0.3], sample=lambda h, state, action, rng: int(rng.integers(4)), horizon=3,
        num_actions=2, initial_state=0, threshold=2.0, safe_policy=lambda h, state: [1.0, 0.0], slack=1.0,
    )  # fmt: skip


ENVIRONMENTS = [
    (lambda: spoiled("P", lambda p: 0.9 * p.P), "a row of P sums to 0.9: normalise P"),
    (lambda: spoiled("task.reward", lambda p: 3 * p.task.reward), "rescale it to .0, 1. per step"),
    (lambda: spoiled("task.hint", lambda p: [p.P.copy()]), "the task can reach P: give the agent no"),
    (lambda: sampled(ByClock), "two runs with the seed 0 differ: draw from the generator"),
]


def test_right_environments_pass():
    es.testing.check_environment(es.make("linear", seed=0), num_episodes=50)
    es.testing.check_environment(sampled(), num_episodes=50)


@pytest.mark.parametrize(("make", "message"), ENVIRONMENTS)
def test_wrong_environments_are_found(make, message):
    with pytest.raises(AssertionError, match=message):
        es.testing.check_environment(make())


def test_there_are_three_functions():
    assert es.testing.__all__ == ["check_agent", "check_certifier", "check_environment"]
