"""A limit is changed as it was stated: in the units of its signal, and what is kept is b of utilities in [0, 1]."""

import numpy as np
import pytest

import episafe as es

gymnasium = pytest.importorskip("gymnasium")
from episafe.deployment.frame_kinds import Kind  # noqa: E402
from episafe.deployment.journal_folder import LOG, read_head  # noqa: E402
from episafe.storage.frames import read  # noqa: E402

H = 4


class Road(gymnasium.Env):
    """Action 1 is fast and falls more often; a fall costs 2, and a step that is none has the comfort of 0.1."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self, signals="cost"):
        self.signals = signals

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h = 0
        return 0, {}

    def step(self, action):
        self.h += 1
        falls = float(self.np_random.random() < (0.02, 0.9)[action])
        cost, utility = 2 * falls, 0.1 * (1 - falls)
        infos = {"cost": {"cost": cost}, "utility": {"utility": utility}}
        infos["both"] = {"cost": {"falls": cost}, "utility": {"comfort": utility}}
        return 1, (0.1, 1.0)[action], False, self.h >= H, infos[self.signals]


def road(signals, **given):
    told = {
        "features": es.features.OneHot(), "horizon": H, "safe_policy": lambda h, s: [1.0, 0.0],
        "time_homogeneous": True,
    }  # fmt: skip
    return es.from_gymnasium(Road(signals), **told | given)


def falling(limit=1.0, slack=0.6, **given):
    return road("cost", cost_limit=limit, cost_range=(0, 2), slack=slack, **given)


def comfortable(threshold=0.24, slack=0.1):
    return road("utility", threshold=threshold, utility_range=(0, 0.1), slack=slack)


def both(threshold=0.24, limit=1.0):
    return road(
        "both", threshold={"comfort": threshold}, cost_limit={"falls": limit}, utility_range=(0, 0.1),
        cost_range=(0, 2), slack={"comfort": 0.1, "falls": min(0.6, limit / 2)},
    )  # fmt: skip


def opened(problem, folder=None):
    return es.open(folder, es.OPSE(problem.task))


def play(session, problem, episodes, seed=0):
    rng = np.random.default_rng(seed)
    problem.seed(seed)
    for _ in range(episodes):
        made = session.deploy(rng)
        session.learn(es.play(problem, made.policy, rng), deployment=made.id)


@pytest.mark.parametrize("random_start", [False, True])
def test_a_cost_limit_becomes_what_it_would_have_been_if_stated_at_first(random_start):
    with opened(falling(random_start=random_start)) as session:
        known = session.task.threshold + session.task.slack
        session.change("fewer falls", cost_limit=0.6)
        assert session.agent.task.threshold == falling(0.6, random_start=random_start).task.threshold == H - 0.3
        assert session.agent.task.slack == pytest.approx(known - (H - 0.3))
        session.change("measured anew", slack=0.2)
        assert (session.agent.task.threshold, session.agent.task.slack) == (H - 0.3, 0.2 / 2)
        with pytest.raises(ValueError, match="nothing would change"):
            session.change("the same", cost_limit=0.6, slack=0.2)


def test_a_threshold_is_in_the_units_of_its_utility():
    with opened(comfortable()) as session:
        session.change("more comfort", threshold=0.26, slack=0.05)
        stated = comfortable(0.26, 0.05).task
        assert (session.agent.task.threshold, session.agent.task.slack) == (stated.threshold, stated.slack)
        assert session.agent.task.threshold == pytest.approx(2.6)


def test_each_of_several_limits_changes_by_its_name_and_in_its_units():
    with opened(both()) as session:
        session.change("fewer falls", cost_limit={"falls": 0.6})
        assert session.agent.task.limits.tolist() == both(limit=0.6).task.limits.tolist()
        session.change("and more comfort", threshold={"comfort": 0.26}, cost_limit={"falls": 0.55})
        assert session.agent.task.limits.tolist() == both(0.26, 0.55).task.limits.tolist()
        for wrong in ({"threshold": {"falls": 0.3}}, {"threshold": [0.26, 0.3]}):
            with pytest.raises(ValueError, match="limit of falls is on a cost: give cost_limit=…"):
                session.change("?", **wrong)
        with pytest.raises(ValueError, match="the limit of comfort is on a utility: give threshold=…"):
            session.change("?", cost_limit={"comfort": 0.3})
        assert session.agent.task.limits.tolist() == both(0.26, 0.55).task.limits.tolist()


def test_the_limit_on_one_signal_is_not_changed_by_that_on_the_other():
    with opened(falling()) as session, pytest.raises(ValueError, match="on a cost: give cost_limit=…, in the units"):
        session.change("fewer falls", threshold=0.3)
    with opened(comfortable()) as session, pytest.raises(ValueError, match="on a utility: give threshold=…"):
        session.change("?", cost_limit=0.3)
    plain = es.Rollout(0.5, 0.4, candidates={"v2": "v2"}, incumbent="v1", utility_max=1.0)
    with es.open(None, plain) as session, pytest.raises(ValueError, match="on a utility: give threshold=…"):
        session.change("?", cost_limit=0.3)


def test_what_cannot_be_is_said_in_the_units_of_the_signal():
    with opened(falling()) as session:
        with pytest.raises(es.Infeasible, match=r"at most 0\.4 and the cost_limit would be 0\.3"):
            session.change("too few", cost_limit=0.3)
        with pytest.raises(es.Infeasible, match=r"the limit 0\.3 with slack 0\.5 cannot be kept"):
            session.change("too few", cost_limit=0.3, slack=0.5)
    with (
        opened(falling(episode_cost_max=2.0)) as session,
        pytest.raises(es.InvalidProblem, match=r"no episode can break the limit 2\.5, as none has a worse total cost"),
    ):
        session.change("more", cost_limit=2.5)
    with opened(comfortable()) as session, pytest.raises(es.Infeasible, match=r"have 0\.34 and the threshold .* 0\.35"):
        session.change("too much", threshold=0.35)


def test_the_journal_keeps_b_and_is_taken_up_and_audited(tmp_path):
    problem = falling()
    with opened(problem, tmp_path) as session:
        play(session, problem, 30)
        session.change("fewer falls", cost_limit=0.6)
        play(session, problem, 30, seed=1)
    frames = read(tmp_path / LOG, read_head(tmp_path)["genesis"])
    (change,) = [frame.notes for frame in frames if frame.kind == Kind.CHANGE]
    assert change["thresholds"] == [H - 0.3]
    with opened(falling(), tmp_path) as session:
        assert session.agent.task.threshold == H - 0.3
        play(session, problem, 5, seed=2)
        session.change("as before", cost_limit=1.0)
        assert session.agent.task.threshold == falling().task.threshold
    audit = es.audit(tmp_path, agent=es.OPSE(falling().task))
    assert audit.is_whole and audit.recomputed == audit.num_plans
