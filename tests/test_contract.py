"""The public names and shapes that programs outside rely on, each used once as a stranger would."""

import pickle

import numpy as np
import pytest

import episafe as es

BENCHMARKS = {
    "media": 3.2533, "ring": 2.0, "jobs": 9.1765, "rover": None, "box": None, "cliff": None, "riverswim": None,
    "dirichlet": None, "queue": None, "stepmix": None, "shop": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def cmdp():
    return es.make("tabular", seed=0)


def test_problems(cmdp, tmp_path):
    task = cmdp.task
    own = es.LinearCMDP(
        cmdp.P,
        task.reward,
        task.utility,
        phi=None,
        initial_state=0,
        threshold=task.threshold,
        safe_policy=None,
        slack=None,
    )
    assert isinstance(own.optimal_value(), float)
    assert not hasattr(own.task, "P")
    reward, utility = own.evaluate(task.safe_policy.table())
    assert np.ndim(reward) == np.ndim(utility) == 0
    own.save(tmp_path / "problem.npz")
    assert es.LinearCMDP.load(tmp_path / "problem.npz").optimal_value() == own.optimal_value()


def test_constants(cmdp):
    es.Constants(1, 1, 1, 1, 0.01, 300, 20, ridge=1.0)
    for name in ("tabular", "streaming", "linear"):
        for agent in ("opse", "ghosh", "dope"):
            assert es.Constants.paper(name, agent=agent).level == "heuristic"
    assert es.Constants.tuned(cmdp.task).level == "heuristic"
    assert es.Constants.theory(cmdp.task, num_episodes=1000, delta=0.05).level == "theorem"


def agents(task):
    opse, ghosh, dope = (es.Constants.paper("tabular", agent=name) for name in ("opse", "ghosh", "dope"))
    return [
        es.OPSE(task, opse, replan=es.Every()),
        es.OPSE(task, opse, replan=es.Doubling(0.3)),
        es.OPSE(task, opse, certifier=es.certify.Model()),
        es.OPSE(task),
        es.Ghosh2024(task, ghosh, replan=es.Every()),
        es.DOPE(task, dope, replan=es.Doubling(0.3)),
        es.Fixed(task, task.safe_policy),
        es.Fixed(task, np.full(task.reward.shape, 1 / task.num_actions)),
    ]


def test_records(cmdp, tmp_path):
    for n, agent in enumerate(agents(cmdp.task)):
        record = es.run(cmdp, agent, num_episodes=20, seed=0)
        for name in ("reward_values", "utility_values", "sources", "lams", "utility_bounds", "acting"):
            assert len(getattr(record, name)) == 20, name
        for values in (record.regret(), record.violation(), record.safe_deployments(), record.violating()):
            assert values.shape == (20,)
        assert record.weights.shape[0] == 20 and np.allclose(record.weights.sum(axis=1), 1)
        assert list(record.to_frame().columns)[:6] == ["episode", "plan_id", "source", "acting", "lam", "reward_value"]
        record.save(tmp_path / str(n))
        np.testing.assert_array_equal(es.Record.load(tmp_path / str(n)).reward_values, record.reward_values)
    assert len(es.load_records(tmp_path)) == len(es.results(tmp_path)) == len(agents(cmdp.task))


def test_plans(cmdp):
    plan = es.OPSE(cmdp.task).plan()
    assert plan.source in ("safe", "zero", "search") and plan.level == "theorem"
    index, component = plan.policy.draw(np.random.default_rng(0))
    assert isinstance(index, int)
    assert isinstance(component.name, str) and component.policy is not None
    policy = cmdp.task.safe_policy
    assert policy.probabilities(0, 0).shape == (cmdp.task.num_actions,)
    assert policy.table().shape == cmdp.task.reward.shape
    assert policy.draw(np.random.default_rng(0))[0] == 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(policy)).table(), policy.table())


def test_policies_travel(cmdp, tmp_path):
    cmdp.task.safe_policy.save(tmp_path / "policy.json")
    loaded = es.load_policy(tmp_path / "policy.json", features=None)
    np.testing.assert_allclose(loaded.table(), cmdp.task.safe_policy.table(), atol=1e-12)


def test_the_recommended_agent_takes_the_strongest_certifier(cmdp):
    assert isinstance(es.OPSE(cmdp.task).certifier, es.certify.Observation)
    assert isinstance(es.OPSE(es.make("inventory").task).certifier, es.certify.Hindsight)
    assert es.OPSE(cmdp.task).certifier.delta == 0.05


@pytest.mark.parametrize("kept", [False, True])
def test_sessions(cmdp, tmp_path, kept):
    rng, H = np.random.default_rng(0), cmdp.task.horizon
    session = es.open(tmp_path / "kept" if kept else None, agent=es.OPSE(cmdp.task), sync="each", false_alarm=0.01)

    def lived(policy):
        states, actions = [cmdp.task.initial_state], []
        for h in range(H):
            actions.append(int(rng.choice(cmdp.task.num_actions, p=policy.probabilities(h, states[-1]))))
            states.append(int(rng.choice(cmdp.task.num_states, p=cmdp.P[h, states[-1], actions[-1]])))
        return states, actions

    for _ in range(3):
        made = session.deploy(rng)
        assert isinstance(made, es.Deployment) and isinstance(made.component, int)
        session.learn(es.Episode(*lived(made.policy), component=made.component), deployment=made.id)
    session.abandon(session.deploy(rng).id)
    plan = session.plan()
    component, policy = plan.policy.draw(rng)
    assert plan.deployment is not None
    session.learn(es.Episode(*lived(policy), component=component), plan_id=plan.id)
    assert "incumbent" in session.agent.bounds()
    session.change(reason="asked for less", threshold=0.9 * cmdp.task.threshold)
    session.promote("incumbent", reason="as it was")
    session.halt("enough")
    session.close()


@pytest.mark.parametrize("several", [False, True])
def test_rollouts(several):
    limits = ([0.5, 0.5], [0.2, 0.2]) if several else (0.5, 0.2)
    agent = es.Rollout(*limits, candidates={"v2": object()}, incumbent=object(), delta=0.05, utility_max=None)
    assert isinstance(agent, es.Agent)
    session, rng = es.open(None, agent=agent), np.random.default_rng(0)
    for _ in range(120):
        made = session.deploy(rng)
        utility = np.ones(2) if several else 1.0
        session.learn(es.Episode.of_totals(utility, 1.0, component=made.component), deployment=made.id)
    assert np.all(np.asarray(agent.bounds()["v2"]) >= 0.5)
    assert session.deploy(rng).policy.name == "v2"


def test_certifiers_have_candidates_and_bounds(cmdp):
    uniform = es.TablePolicy(np.full(cmdp.task.reward.shape, 1 / cmdp.task.num_actions))
    for certifier in (es.certify.Observation(delta=0.05), es.certify.FreshData(delta=0.05), es.certify.Box(delta=0.05)):
        agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier)
        agent.add_candidate("uniform", uniform)
        assert {"incumbent", "uniform"} <= set(agent.bounds())
    paper = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
    assert paper.bounds() == {}
    with pytest.raises(TypeError, match="tries no policies"):
        paper.add_candidate("uniform", uniform)


@pytest.mark.parametrize("name", ["inventory", "battery", "cloud"])
def test_exogenous_problems(name):
    problem, rng = es.make(name, seed=0), np.random.default_rng(0)
    task = problem.task
    assert task.is_exogenous
    start, chances = trace = problem.draw_trace(rng)
    assert start == task.initial_state and len(chances) == task.horizon
    episode = task.replay(task.safe_policy, trace, rng)
    again = task.replay(task.safe_policy, trace, rng, actions=episode.actions)
    np.testing.assert_array_equal(again.states, episode.states)
    next_state, reward, utility = task.move(0, episode.states[0], int(episode.actions[0]), chances[0])
    assert next_state == episode.states[1] and (reward, utility) == (episode.rewards[0], episode.utilities[0])


def test_several_constraints(cmdp):
    task = cmdp.task
    two = es.LinearCMDP(
        cmdp.P, task.reward, [task.utility, 1 - task.utility / 2], threshold=[0.1, 0.1], slack=[0.01, 0.01]
    )
    assert two.evaluate(two.task.safe_policy)[1].shape == (2,)
    assert len(two.task.constraints) == 2
    for name in ("utility", "threshold", "slack"):
        with pytest.raises(es.InvalidProblem):
            getattr(two.task, name)
    one = es.LinearCMDP(cmdp.P, task.reward, [task.utility], threshold=[0.1], slack=[0.01])
    assert np.ndim(one.task.threshold) == 0 and np.ndim(one.evaluate(one.task.safe_policy)[1]) == 0
    drawn = es.make("tabular", num_constraints=2, seed=0)
    record = es.run(drawn, es.OPSE(drawn.task), num_episodes=30, seed=0)
    for values in (record.utility_values, record.utility_bounds, record.violation()):
        assert values.shape == (30, 2)
    assert record.violating().shape == (30,)
    assert es.Constraint(None, 0.5, 0.1, name="served", least_total=0.0).name == "served"


def test_chance_constraints(cmdp):
    cost = (cmdp.task.utility < 0.5).astype(float)
    limited = es.chance(cmdp, cost=cost, total_cost_at_most=2, probability=0.4, name="few", keep=True)
    assert limited.task.constraint_names[-1] == "few"
    alone = es.chance(cmdp, cost=cost, total_cost_at_most=2, probability=0.4)
    assert alone.task.threshold == pytest.approx(0.4)


@pytest.mark.parametrize(("name", "optimum"), BENCHMARKS.items())
def test_benchmark_problems(name, optimum):
    value = es.make(name, seed=0).optimal_value()
    assert value == pytest.approx(optimum, abs=5e-5) if optimum is not None else np.isfinite(value)


def test_episodes():
    es.Episode(
        states=None,
        actions=None,
        rewards=None,
        utilities=None,
        component=None,
        trace=None,
        total_utility=1.0,
        total_reward=1.0,
    )
    assert es.Episode.of_totals(0.5, reward=0.0, component=None).total_utility == 0.5
