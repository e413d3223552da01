"""Problems, records and journals with several constraints; with one, also in a list, all is as ever."""

import numpy as np
import pytest

import episafe as es
import oracles


def two(seed=0, **options):
    return es.make("tabular", seed, num_constraints=2, **options)


def test_a_list_of_one_is_one():
    one = es.make("tabular", 3)
    task = one.task
    listed = es.LinearCMDP(
        one.P, task.reward, [task.utility], initial_state=task.initial_state, threshold=[task.threshold], slack=[0.1]
    )
    assert listed.task.threshold == task.threshold and listed.task.slack == 0.1
    assert listed.evaluate(task.safe_policy) == one.evaluate(task.safe_policy)
    assert type(listed.evaluate(task.safe_policy)[1]) is float
    assert listed.optimal_value() == one.optimal_value()


def test_the_first_constraint_of_several_is_the_one_of_the_problem_with_one():
    one, both = es.make("tabular", 5), two(5)
    np.testing.assert_array_equal(both.P, one.P)
    np.testing.assert_array_equal(both.task.reward, one.task.reward)
    np.testing.assert_array_equal(both.task.constraints[0].utility, one.task.utility)
    incumbent = both.evaluate(both.task.safe_policy)[1]
    np.testing.assert_allclose(both.task.limits, 0.6 * incumbent, rtol=1e-12)
    three = es.make("tabular", 5, num_constraints=3)
    np.testing.assert_array_equal(three.task.constraints[1].utility, both.task.constraints[1].utility)


@pytest.mark.parametrize("seed", range(12))
def test_values_and_optimum_equal_those_of_independent_ways(seed):
    cmdp = es.make("tabular", seed, num_constraints=1 + seed % 3 + 1)
    task, rng = cmdp.task, np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(task.num_actions), task.reward.shape[:2])
    V_u = cmdp.evaluate(policy)[1]
    for one, value in zip(task.constraints, V_u, strict=True):
        independent = oracles.trajectory_value(cmdp.P, policy, one.utility, task.initial_state)
        assert value == pytest.approx(independent, abs=1e-12)
    lp = oracles.lp_optimum(cmdp.P, task.reward, task.utilities, np.array(task.limits), task.initial_state)
    assert cmdp.optimal_value() == pytest.approx(lp, abs=1e-8)
    assert cmdp.optimal_value("lp") == pytest.approx(lp, abs=1e-7)
    assert np.all(cmdp.evaluate(cmdp.optimal_policy())[1] >= task.limits)


def test_what_one_constraint_has_is_refused_of_several():
    task = es.make("tabular", 0, num_constraints=2).task
    for what in ("utility", "threshold", "slack"):
        with pytest.raises(es.InvalidProblem, match=f"2 constraints .*no one {what}: read it of each of task.constra"):
            getattr(task, what)
    assert task.constraint_names == ("constraint 0", "constraint 1")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"threshold": [0.1]}, "threshold has 1 entries, and utility is a list of 2"),
        ({"slack": 0.1}, "slack is 0.1: give 2, one a constraint"),
        ({"names": ("a", "a")}, "give each a name of its own"),
        ({"threshold": [0.1, 9.0], "names": ("service", "waste")}, "threshold 9 of waste cannot be reached"),
        ({"slack": [0.01, 9.0]}, "slack of constraint 1 must lie in"),
    ],
)
def test_lists_that_do_not_fit_are_refused(told, says):
    raw = oracles.random_cmdp(np.random.default_rng(0), 3, 2, 2)
    given = {"utility": [raw["utility"], raw["utility"]], "threshold": [0.1, 0.1], **told}
    with pytest.raises(es.InvalidProblem, match=says):
        es.LinearCMDP(raw["P"], raw["reward"], **given)


def test_an_incumbent_that_misses_one_constraint_is_refused():
    P, reward = np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2))
    utilities = [[[[1.0, 0.0]]], [[[0.0, 1.0]]]]
    with pytest.raises(es.Infeasible, match=r"not strictly safe: its utility of waste is 0 and the threshold 0.4"):
        es.LinearCMDP(
            P, reward, utilities, threshold=[0.4, 0.4], safe_policy=[[[1.0, 0.0]]], names=("service", "waste")
        )


def test_a_problem_comes_back_from_its_file(tmp_path):
    cmdp = two(1)
    task = cmdp.task
    named = es.LinearCMDP(
        cmdp.P, task.reward, list(task.utilities), initial_state=task.initial_state, threshold=list(task.limits),
        slack=[0.01, 0.02], safe_policy=task.safe_policy, names=("service", "waste"),
    )  # fmt: skip
    named.save(tmp_path / "problem.npz")
    back = es.LinearCMDP.load(tmp_path / "problem.npz").task
    assert back.constraint_names == ("service", "waste")
    assert [one.slack for one in back.constraints] == [0.01, 0.02]
    np.testing.assert_array_equal(back.utilities, task.utilities)
    assert es.Task.from_arrays(named.task.as_arrays()).numbers([]) is not None
    assert "constraints='service, waste'" in repr(named)


def test_a_record_has_an_axis_for_constraints(tmp_path):
    cmdp = two(2)
    record = es.run(cmdp, es.Fixed(cmdp.task, "uniform"), 5)
    value = cmdp.evaluate(np.full(cmdp.task.reward.shape, 1 / 3))[1]
    np.testing.assert_array_equal(record.utility_values, np.tile(value, (5, 1)))
    short = np.maximum(cmdp.task.limits - value, 0)
    np.testing.assert_allclose(record.violation(), np.arange(1, 6)[:, None] * short, rtol=1e-12)
    assert record.violating().shape == (5,) and record.violating().all() == (short > 1e-9).any()
    record.save(tmp_path)
    back = es.Record.load(tmp_path)
    assert back.constraint_names == cmdp.task.constraint_names
    for name in (*back.columns(), "threshold"):
        np.testing.assert_array_equal(getattr(back, name), getattr(record, name))
    second = record.of_constraint(1)
    np.testing.assert_array_equal(second.utility_values, record.utility_values[:, 1])
    assert second.violation().shape == (5,) and second.settings["constraint"] == "constraint 1"


def test_an_episode_reports_a_column_a_constraint():
    task = two(0).task
    states, actions = np.zeros(5, dtype=int), np.zeros(4, dtype=int)
    told = [task.utilities[:, h, 0, 0] for h in range(4)]
    np.testing.assert_allclose(task.total("utility", es.Episode(states, actions)), np.sum(told, axis=0))
    seen = es.Episode(states, actions, utilities=np.full((4, 2), [0.25, 0.5]))
    task.check_report(seen)
    np.testing.assert_allclose(task.total("utility", seen), [1.0, 2.0])
    np.testing.assert_allclose(task.total("utility", es.Episode.of_totals([1.0, 3.0])), [1.0, 3.0])
    for wrong in (np.zeros(4), np.zeros((4, 3))):
        with pytest.raises(es.InvalidEpisode, match=r"shape \(4, 2\), a row a step and a column a constraint"):
            task.check_report(es.Episode(states, actions, utilities=wrong))
    with pytest.raises(es.InvalidEpisode, match="2 numbers, one a constraint"):
        task.check_report(es.Episode.of_totals(1.0))


def test_a_journal_and_its_audit_know_every_bound(tmp_path):
    cmdp = two(3)
    record = es.run(cmdp, es.Fixed(cmdp.task, "incumbent"), 20, folder=tmp_path / "run")
    found = es.audit(tmp_path / "run")
    assert not found.damage and found.recomputed == 1
    assert '"bound":[null,null],"threshold":[' in found.lines[0]
    again = es.resume(tmp_path / "run")
    np.testing.assert_array_equal(again.utility_values, record.utility_values)


def test_each_constraint_has_monitors_with_their_share():
    """An incumbent that is told to have more waste than it has: its own monitors find out, the others keep still."""
    cmdp = two(4)
    task = cmdp.task
    lie = [0.4, 0.0] * task.limits / 0.6 + [1e-6, 1.0]
    constraints = [
        es.Constraint(one.utility, b, x, name)
        for one, b, x, name in zip(task.constraints, task.limits, lie, ("service", "waste"), strict=True)
    ]
    told = es.Task(4, 5, 3, task.reward, None, task.initial_state, constraints, task.safe_policy)
    monitors = es.Monitors(told, delta=0.05)
    agent, rng = es.Fixed(told, "incumbent"), np.random.default_rng(0)
    for _ in range(600):
        plan, states = agent.plan(), [task.initial_state]
        actions = []
        for h in range(4):
            actions.append(plan.policy.act(h, states[-1], rng))
            states.append(rng.choice(5, p=cmdp.P[h, states[-1], actions[-1]]))
        monitors.watch(plan, es.Episode(np.array(states), np.array(actions)))
    assert {alarm.says.split(":")[0] for alarm in monitors.alarms} == {"waste"}
    assert monitors.status()["waste"]["incumbent"]["false_alarm"] == pytest.approx(0.05 / 2 / 6)
    twin = es.Monitors(told, delta=0.05)
    twin.restore(monitors.state())
    assert [alarm.says for alarm in twin.alarms] == [alarm.says for alarm in monitors.alarms]
