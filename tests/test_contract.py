"""The contract of episafe, tested from outside: public names only."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe.algorithms import registered_agents

ROOT = Path(__file__).parent.parent
AGENTS = {name: (facts, factory) for name, (facts, factory) in registered_agents().items() if name != "fixed"}


def small(seed=0, **options):
    rng = np.random.default_rng(seed)
    P, reward, utility = rng.dirichlet(np.ones(3), (3, 3, 2)), rng.random((3, 3, 2)), rng.random((3, 3, 2))
    return es.LinearCMDP(P, reward, utility, **({"threshold_share": 0.6} | options))


def shop():
    """Return an exogenous problem by functions: an order of 0 or 2 units, demand 0, 1 or 2."""

    def move(h, state, action, w):
        stock = min(state + 2 * action, 4)
        return stock - min(w, stock), 0.5 * (1 - action), float(w <= stock)

    return es.SampledCMDP(
        lambda state: np.eye(2), None, None, None, 4, 2, 1, 2.0, lambda h, state: [0.1, 0.9], 0.5, move=move,
        chance=lambda h, earlier, rng: int(rng.integers(3)), support=lambda h, state: [0, 1, 2],
    )  # fmt: skip


# problems


def test_a_listed_problem_is_evaluated_saved_and_loaded(tmp_path):
    cmdp = small()
    assert cmdp.task.thresholds.shape == (1,)
    reward, utility = cmdp.evaluate(cmdp.task.incumbent)
    assert utility == pytest.approx(float(cmdp.task.thresholds[0] + cmdp.task.slacks[0]))
    assert cmdp.optimal_value() >= reward
    cmdp.save(tmp_path / "problem.npz")
    again = es.LinearCMDP.load(tmp_path / "problem.npz")
    assert again.optimal_value() == cmdp.optimal_value()
    mixture = es.Mixture([cmdp.task.incumbent, cmdp.optimal_policy()], [0.25, 0.75])
    parts = [cmdp.evaluate(one) for one in mixture.components]
    assert cmdp.evaluate(mixture)[1] == pytest.approx(0.25 * parts[0][1] + 0.75 * parts[1][1])


def test_several_limits_have_a_shape_and_one_limit_is_a_number():
    cmdp = es.make("tabular", seed=0, num_constraints=2)
    assert cmdp.evaluate(cmdp.task.incumbent)[1].shape == (2,)
    assert isinstance(small().evaluate(small().task.incumbent)[1], float)
    agent = es.SafeAgent(cmdp)
    record = es.run(cmdp, agent, 50)
    assert record.bounds.shape == (50, 2)
    assert {bound.shape for bound in agent.bounds().values()} == {(2,)}
    constraint = es.Constraint(None, 0.5, 0.1, "service", least_total=0.1)
    assert (constraint.threshold, constraint.slack, constraint.name) == (0.5, 0.1, "service")


def test_a_problem_by_functions_is_run_with_traces_and_its_slack_is_measured():
    problem = shop()
    agent = es.SafeAgent(problem, candidates={"never": lambda h, state: [1.0, 0.0]})
    assert type(agent.certifier) is es.certify.Hindsight
    assert repr(es.SafeAgent(small(), delta=0.1).certifier) == "Observation(delta=0.1)"
    record = es.run(problem, agent, 60, seed=1)
    assert len(record.reward_values) == 60
    assert es.measure_slack(problem).lower > 0


def test_a_gymnasium_environment_becomes_a_problem():
    gymnasium = pytest.importorskip("gymnasium")

    class Corridor(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = 0
            return 0, {}

        def step(self, action):
            self.place = min(self.place + int(action), 2)
            return self.place, float(action), False, False, {"cost": float(self.np_random.random() < 0.3 * action)}

    problem = es.from_gymnasium(Corridor(), horizon=4, incumbent=lambda h, state: [1.0, 0.0], cost_limit=1.0, slack=0.9)
    record = es.run(problem, es.SafeAgent(problem), 40)
    assert record.utility_totals.shape == (40,)


def test_a_chance_limit_is_a_probability():
    cmdp = small(1)
    limited = es.chance(cmdp, total_cost_at_most=2.9, probability=0.05)
    assert limited.task.thresholds[0] == 0.05
    assert 0.05 <= limited.evaluate(limited.task.incumbent)[1] <= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small(threshold=5.0), "lower the threshold|exceeds the horizon|cannot be reached"),
        (lambda: es.LinearCMDP(np.ones((2, 2, 2, 2)), 0, 0, threshold=0), "sums to 2, not to 1: normalise"),
        (lambda: es.make("tabuler"), "tabular"),
        (lambda: es.TablePolicy([[[0.5, 0.6]]]), "sums to 1.1, not to 1: normalise"),
        (lambda: es.SafeAgent(small(), delta=0), "delta must be a number in"),
        (lambda: es.run(small(), es.SafeAgent(small(1)), 5), "another problem: build it from this problem"),
    ],
)
def test_errors_name_the_value_and_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()
    assert issubclass(es.Infeasible, es.InvalidProblem)


# agents: one battery for every registered one


def build(name):
    """Return a problem that the agent can play, and a function that builds the agent for it."""
    facts, factory = AGENTS[name]
    problem = es.bandits.make("finite", seed=0) if facts.kind == "bandit" else es.make("tabular", seed=0)
    assert facts.needs(problem) == ""
    arguments = facts.arguments(problem, 25)
    if name in ("opse", "ghosh", "ghosh2024", "dope") and "constants" not in arguments:
        arguments["constants"] = es.Constants.tuned(problem.task)
    return problem, lambda given: factory(given, **arguments)


@pytest.mark.parametrize("name", AGENTS)
def test_every_registered_agent_keeps_the_interface(name):
    problem, make_agent = build(name)
    es.testing.check_agent(make_agent, problem, num_episodes=12)
    agent = make_agent(problem.task)
    record = es.run(problem, agent, 10)
    assert record.settings["level"] == agent.level
    if agent.level == "theorem":
        reached = (record.bounds.reshape(10, -1) >= problem.task.thresholds).all(axis=1)
        assert ((record.sources == "safe") | reached).all()


def test_an_agent_of_a_paper_plans_and_learns_by_hand():
    cmdp = es.make("streaming", seed=3)
    agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"), replan=es.Doubling(0.3), variant="text")
    plan = agent.plan()
    assert plan.policy.table().shape == cmdp.task.reward.shape
    assert plan.source == "safe"
    agent.learn(es.Episode([0] * (cmdp.task.horizon + 1), [0] * cmdp.task.horizon), plan_id=plan.id)
    with pytest.raises(es.InvalidEpisode, match="must have length"):
        agent.learn(es.Episode([0, 0], [0]))
    assert es.Constants.theory(cmdp.task, num_episodes=100, delta=0.05).C_u > 100


# simulation


def test_a_record_has_facts_metrics_and_a_file(tmp_path):
    cmdp = small()
    record = es.run(cmdp, es.SafeAgent(cmdp), num_episodes=80, seed=2)
    again = es.run(cmdp, es.SafeAgent(cmdp), num_episodes=80, seed=2)
    assert np.array_equal(record.utility_values, again.utility_values)
    for column in ("reward_values", "utility_values", "sources", "lams", "bounds", "acting"):
        assert np.shape(getattr(record, column)) == (80,)
    assert record.weights.sum(axis=1) == pytest.approx(np.ones(80))
    assert record.regret()[-1] == pytest.approx((cmdp.optimal_value() - record.reward_values).sum())
    assert record.violation()[-1] == 0
    assert record.settings["run_seed"] == 2
    assert len(record.to_frame()) == 80
    record.save(tmp_path / "run")
    loaded = es.Record.load(tmp_path / "run")
    assert np.array_equal(loaded.bounds, record.bounds, equal_nan=True)
    with pytest.raises(ValueError, match="build a new one"):
        agent = es.SafeAgent(cmdp)
        es.run(cmdp, agent, 1)
        es.run(cmdp, agent, 1)


# a live system


def serve(session, cmdp, number, rng):
    """Play episodes in a session, step by step."""
    for _ in range(number):
        with session.deploy() as d:
            state = cmdp.task.initial_state
            for h in range(cmdp.task.horizon):
                action = d.act(state)
                d.record()
                state = int(rng.choice(cmdp.task.num_states, p=cmdp.P[h, state, action]))
            d.end(state)


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_a_session_deploys_reports_decides_and_is_audited(tmp_path, where):
    cmdp, rng = small(), np.random.default_rng(0)
    make = lambda: es.SafeAgent(cmdp, candidates={"best": cmdp.optimal_policy()})  # noqa: E731
    location = tmp_path / "live" if where == "folder" else None
    with es.open(location, make()) as session:
        with pytest.raises(ValueError, match=r"bounds reach them|certified"):
            session.promote("best", reason="it looks good")
        serve(session, cmdp, 15, rng)
        d = session.deploy(episode_id="2026-11-18")
        assert session.deploy(episode_id="2026-11-18").id == d.id
        assert d.policy.probabilities(0, 0).sum() == pytest.approx(1)
        assert d.plan.level == "theorem"
        states = [cmdp.task.initial_state, 0, 0, 0]
        actions = [int(d.policy.probabilities(h, states[h]).argmax()) for h in range(3)]
        session.report(d.id, es.Episode(states, actions, component=d.component))
        with pytest.raises(es.InvalidEpisode, match="a report counts once"):
            session.report(d.id, es.Episode(states, actions))
        lost = session.deploy()
        session.abandon(lost.id)
        session.halt(reason="a sensor broke")
        assert session.deploy().plan.source == "safe"
        session.resume(reason="it was repaired")
        session.change(threshold=float(cmdp.task.thresholds[0]) * 0.9, reason="the contract changed")
        session.withdraw("best", reason="enough")
        bounds, head, status = session.bounds(), session.head, session.status()
        assert status["deployments"] == 18
        assert "best" not in bounds
        assert session.export(tmp_path / "episodes.csv") == 16
    assert len(es.read_episodes(tmp_path / "episodes.csv", cmdp)) == 16
    if location is None:
        return
    with es.open(location, make()) as session:
        assert session.head == head
        assert all(np.array_equal(session.bounds()[name], bounds[name]) for name in bounds)
    assert es.audit(location, make(), head=head).passed
    assert es.audit(location).passed
    log = location / "log.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:5], lines[5].replace('"time":"2', '"time":"3'), *lines[6:]]) + "\n")
    result = es.audit(location)
    assert not result.passed
    assert result.findings
    with pytest.raises(es.DamagedLog):
        es.open(location, make())


def test_policies_are_files(tmp_path):
    policy = small().optimal_policy()
    policy.save(tmp_path / "policy.json")
    assert np.array_equal(es.load_policy(tmp_path / "policy.json").table(), policy.table())
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(es.DamagedLog):
        es.load_policy(tmp_path / "policy.json")


# the package


def test_importing_the_package_is_cheap_and_every_public_name_exists():
    code = (
        "import sys, episafe; print(len([one for one in sys.modules if one.startswith(('numpy', 'numba', 'episafe'))]))"
    )
    assert int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) <= 3
    assert len(es.__all__) <= 56
    for name in es.__all__:
        assert getattr(es, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Opse'"):
        es.Opse  # noqa: B018


def test_the_code_of_contributing_runs(tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "greedy.py").write_text(blocks[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("episafe.core.agent.AGENTS", dict(AGENTS))
    for line in re.findall(r'python -c "(.*)"', text):
        exec(line, {})
    for block in blocks[1:]:
        exec(block, {})
    from episafe.cli import main

    (command,) = re.findall(r"    episafe (run .*)", text)
    assert main(command.split()) in (0, None)
