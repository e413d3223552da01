"""Families of policies: the search, the trials, and a session that is opened again."""

import gymnasium
import numpy as np
import pytest

import episafe as es


class Desk(gymnasium.Env):
    """A help desk: 8 hours, staff 0 to 4; reward is what is saved in wages, utility the share of calls answered."""

    observation_space = gymnasium.spaces.Discrete(8)
    action_space = gymnasium.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour = 0
        return 0, {}

    def step(self, action):
        calls = self.np_random.poisson(2.0 + (self.hour in (3, 4)))
        utility = min(1.0, (action + 1) / max(calls, 1))
        self.hour += 1
        return min(self.hour, 7), 1 - action / 4, self.hour == 8, False, {"utility": utility}


def one_hot(action):
    return np.eye(5)[action]


def staffing(calm, busy):
    return lambda h, state: one_hot(busy if state in (3, 4) else calm)


def desk():
    return es.from_gymnasium(Desk(), horizon=8, incumbent=lambda h, s: one_hot(4), threshold=7.2, slack=0.6)


SPACE = {"calm": (0, 4), "busy": (0, 4)}


def test_family_earns_more_and_keeps_the_limit():
    problem = desk()
    agent = es.SafeAgent(problem, family=es.Family(staffing, SPACE))
    record = es.run(problem, agent, num_episodes=600, seed=1)
    acting = [name for name in agent.bounds() if name.startswith("proposal")]
    assert acting and record.reward_totals[-200:].mean() > 2.0  # the incumbent earns 0
    assert record.utility_totals.mean() >= 7.2


def test_candidates_of_the_user_are_tried_before_proposals():
    problem = desk()
    agent = es.SafeAgent(problem, candidates={"calm 2": staffing(2, 4)}, family=es.Family(staffing, SPACE))
    names = set()
    rng = np.random.default_rng(0)
    for _ in range(20):
        plan = agent.plan()
        names.update(plan.policy.names if isinstance(plan.policy, es.Mixture) else [])
        component, policy = plan.policy.draw(rng) if isinstance(plan.policy, es.Mixture) else (None, plan.policy)
        agent.learn(problem.play(policy, rng, component), plan.id)
    assert names == {"calm 2", "incumbent"}


@pytest.mark.parametrize(
    ("space", "message"),
    [({}, "space is empty"), ({"a": (1.0, 0.0)}, "low < high"), ({"a": []}, "no choices"), ({"a": (1,)}, "range of a")],
)
def test_family_refuses_a_wrong_space(space, message):
    with pytest.raises(es.InvalidProblem, match=message):
        es.Family(staffing, space)


def test_points_and_parameters_are_inverse():
    family = es.Family(staffing, {"a": (0.0, 2.0), "b": (1, 3), "c": ["x", "y"]})
    for parameters in ({"a": 0.5, "b": 1, "c": "x"}, {"a": 2.0, "b": 3, "c": "y"}):
        assert family.parameters_at(family.point_at(parameters)) == parameters


def test_session_with_a_family_opens_again(tmp_path):
    def agent():
        return es.SafeAgent(desk(), family=es.Family(staffing, SPACE))

    rng, problem = np.random.default_rng(0), desk()
    session = es.open(tmp_path, agent())
    for _ in range(40):
        d = session.deploy()
        session.report(d.id, problem.play(d.policy, rng))
    bounds = session.bounds()
    session.close()
    again = es.open(tmp_path, agent())
    assert {name: bound.tolist() for name, bound in again.bounds().items()} == {
        name: bound.tolist() for name, bound in bounds.items()
    }
    assert "proposal-1" in bounds
    d = again.deploy()
    again.report(d.id, problem.play(d.policy, rng))
    again.close()
    assert es.audit(tmp_path, agent()).passed
