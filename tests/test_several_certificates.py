"""What may be deployed under several constraints: weights by a linear program, a bound of each, the same bits."""

import shutil

import numpy as np
import pytest
from scipy.optimize import linprog

import episafe as es
import oracles
from conftest import constants
from episafe.certify.observation import ObservationCertificate
from episafe.deployment.explanation import explain
from episafe.kernels.extended_value_iteration import KernelBox
from episafe.kernels.mixing import admits_all
from episafe.kernels.mixture_weights import best_weights, mixture_bound
from episafe.kernels.model_arrays import Scales
from episafe.kernels.table_passes import several_pass
from episafe.learning.dope_problem import (
    markov_table,
    optimistic_pessimistic,
    optimistic_pessimistic_of_several,
    signal_values,
)
from episafe.learning.several_planner import hopeful_policy
from episafe.runs.run import Simulation, plain_loop


def observing(task, delta=0.05):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation(delta))


@pytest.mark.parametrize("seed", range(60))
def test_weights_solve_the_linear_program_and_pass_the_check(seed):
    rng = np.random.default_rng(seed)
    n, m = (int(rng.integers(*limits)) for limits in ((2, 8), (1, 6)))
    thresholds, lower, scores = 2 * rng.random(m), 3 * rng.random((n, m)), rng.random(n)
    lower[0] = thresholds + rng.random(m)
    in_use = (rng.random(n) < 0.8).astype(np.int64) | (np.arange(n) == 0)
    weights = best_weights(scores, lower, thresholds, in_use)
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12)
    assert (weights > 0).sum() <= m + 1 and not weights[in_use == 0].any()
    assert admits_all([mixture_bound(weights, lower, c) for c in range(m)], thresholds)
    used = in_use == 1
    solved = linprog(-scores[used], -lower[used].T, -thresholds, np.ones((1, used.sum())), [1.0], method="highs")
    assert scores @ weights == pytest.approx(-solved.fun, abs=1e-9)


def test_an_incumbent_that_is_not_known_to_be_safe_acts_alone():
    weights = best_weights(
        np.array([0.0, 1.0]), np.array([[0.5, 2.0], [0.6, 2.0]]), np.array([1.0, 1.0]), np.ones(2, int)
    )
    assert weights.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("utility_bounds", "passes"), [([1.0, 2.0], True), ([1.0, 1.9], False), ([np.nan, 3.0], False)]
)
def test_the_check_is_of_every_constraint(utility_bounds, passes):
    assert admits_all(np.array(utility_bounds), np.array([1.0, 2.0])) is passes
    assert not admits_all(5.0, np.array([1.0, 2.0]))  # one bound says nothing of two constraints


@pytest.mark.parametrize(("seed", "d"), [(0, None), (1, None), (2, 3), (3, 3)])
def test_the_recursion_with_one_multiplier_is_the_paper_s(seed, d, draw_cmdp):
    """And with two equal constraints at half of λ each it is the same policy."""
    rng = np.random.default_rng(seed)
    cmdp, raw = draw_cmdp(rng, d=d)
    task, given = cmdp.task, constants(C_u=0.3)
    agent = es.OPSE(task, given)
    policy = np.full(task.reward.shape, 1 / task.num_actions)
    episodes = list(oracles.random_episodes(rng, raw, policy, 30))
    for states, actions in episodes:
        agent.learn(es.Episode(states, actions))
    P_hat, beta = agent.planner.regression.tables()
    scales = Scales(given.C_r, -given.C_u, given.C_dagger, given.B_dagger, given.kappa)
    table, strays = np.zeros(task.reward.shape), not agent.planner.regression.model.is_dense
    one = several_pass(P_hat, np.stack([task.reward, task.utility]), beta, strays, scales, np.array([1.5]), table)
    agent.planner.decide()
    V_u = agent.planner.utility_bound(1.5)
    assert one[2, task.initial_state] == pytest.approx(V_u, abs=1e-9)
    np.testing.assert_allclose(table, agent.planner.policy(1.5).table(), atol=1e-7)
    twice = np.zeros(task.reward.shape)
    signals = np.stack([task.reward, task.utility, task.utility])
    several_pass(P_hat, signals, beta, strays, scales, np.array([0.75, 0.75]), twice)
    np.testing.assert_allclose(twice, table, atol=1e-7)


def test_the_compiled_loop_has_the_bits_of_the_plain_one():
    cmdp = es.make("tabular", 1, num_constraints=2)
    fast = es.run(cmdp, observing(cmdp.task), 700)
    simulation = Simulation(cmdp, observing(cmdp.task), 700, 0)
    plain = simulation.play(done=plain_loop(simulation.world, simulation.session, simulation.columns))
    assert fast.columns() == plain.columns()
    for name in fast.columns():
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name))
    assert len(np.unique(fast.acting)) > 3


def test_observation_keeps_every_constraint_and_improves():
    for seed in range(2):
        cmdp = es.make("tabular", seed, num_constraints=2)
        record = es.run(cmdp, observing(cmdp.task), 3000)
        checked = record.sources == "search"
        assert not record.violating().any()
        assert (record.utility_bounds[checked] >= cmdp.task.limits).all()
        assert (record.utility_bounds[checked] <= record.utility_values[checked] + 1e-9).all()
        alone = 3000 * (cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0])
        assert record.regret()[-1] < 0.6 * alone
        weights = np.sort(record.weights, axis=1)
        assert (weights[:, :-3] == 0).all()  # at most m + 1 policies


def test_to_check_one_constraint_alone_violates_the_other():
    """The control: what the second check is for."""
    cmdp = es.make("tabular", 0, num_constraints=2)
    task = cmdp.task
    first = es.LinearCMDP(
        cmdp.P, task.reward, task.utilities[0], initial_state=task.initial_state, threshold=float(task.limits[0]),
        safe_policy=task.safe_policy,
    )  # fmt: skip
    record = es.run(first, observing(first.task), 1500)
    agent = observing(first.task)
    es.run(first, agent, 1500)
    assert not record.violating().any()
    deployed = [cmdp.evaluate(one.policy)[1] for one in agent.recent_plans()]
    assert min(values[1] for values in deployed) < task.limits[1]


def test_a_session_and_its_journal_take_several_constraints(tmp_path):
    cmdp = es.make("tabular", 2, num_constraints=2)
    rng = np.random.default_rng(0)
    with es.open(tmp_path, agent=observing(cmdp.task)) as session:
        for _ in range(40):
            made = session.deploy(rng)
            states, actions = [cmdp.task.initial_state], []
            for h in range(4):
                actions.append(made.policy.policy.act(h, states[-1], rng))
                states.append(rng.choice(5, p=cmdp.P[h, states[-1], actions[-1]]))
            utilities = cmdp.task.utilities[:, np.arange(4), states[:-1], actions].T
            episode = es.Episode(np.array(states), np.array(actions), utilities=utilities, component=made.component)
            session.learn(episode, deployment=made.id)
        bounds = session.agent.bounds()
        plan = session.plan()
    assert bounds["incumbent"].shape == (2,) and plan.utility_bound.shape == (2,)
    again = observing(cmdp.task)
    with es.open(tmp_path, agent=again) as session:
        for name, bound in session.agent.bounds().items():
            np.testing.assert_array_equal(bound, bounds[name])
    assert not es.audit(tmp_path).damage
    assert "in constraint 1, which has the least room" in " ".join(explain(tmp_path).sentences)


def test_a_state_goes_on_where_it_was():
    cmdp = es.make("tabular", 3, num_constraints=3)
    agent, twin = observing(cmdp.task), observing(cmdp.task)
    es.run(cmdp, agent, 300)
    twin.restore(agent.state())
    rest = [es.run(cmdp, one, 200, seed=7) for one in (agent, twin)]
    np.testing.assert_array_equal(rest[0].utility_bounds, rest[1].utility_bounds)


def test_opse_checks_every_bound_with_a_multiplier_each():
    cmdp = es.make("tabular", 0, num_constraints=2)
    agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"), es.Doubling(0.5))
    record = es.run(cmdp, agent, 400)
    checked = record.sources != "safe"
    assert checked.any() and (record.utility_bounds[checked] >= cmdp.task.limits).all()
    assert not record.violating().any()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda t: es.OPSE(t, es.Constants.paper("tabular"), search=es.WarmStart()), "own search only"),
        (lambda t: es.Ghosh2024(t, es.Constants.paper("tabular", "ghosh")), "2 constraints .*no one"),
        (lambda t: es.Constants.theory(t, num_episodes=10), "2 constraints .*no one"),
        (lambda t: es.Constants.tuned(t), "2 constraints .*no one"),
    ],
)
def test_what_cannot_take_several_says_so(build, says):
    with pytest.raises((ValueError, TypeError), match=says):
        build(es.make("tabular", 0, num_constraints=2).task)


@pytest.mark.parametrize("seed", range(6))
def test_a_proposal_is_the_optimum_of_its_model(seed):
    cmdp = es.make("tabular", seed, num_constraints=2 + seed % 3)
    task = cmdp.task
    table, _ = hopeful_policy(cmdp.P, task.reward, task.utilities, np.array(task.limits), task.initial_state)
    V_r, V_u = cmdp.evaluate(table)
    assert V_r == pytest.approx(cmdp.optimal_value(), abs=1e-8)
    assert np.all(V_u >= task.limits - 1e-8)


def test_a_proposal_that_cannot_reach_its_aim_comes_near():
    cmdp = es.make("tabular", 0, num_constraints=2)
    task = cmdp.task
    aims = np.array([task.limits[0], 4.0])
    table, _ = hopeful_policy(cmdp.P, task.reward, task.utilities, aims, task.initial_state)
    assert cmdp.evaluate(table)[1][1] > task.limits[1]


def boxed(task):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Box())


def test_a_box_keeps_every_constraint_and_improves():
    cmdp = es.make("tabular", 0, num_constraints=2)
    agent = boxed(cmdp.task)
    record = es.run(cmdp, agent, 2500)
    checked = record.sources == "search"
    assert not record.violating().any()
    assert (record.utility_bounds[checked] >= cmdp.task.limits).all()
    assert (record.utility_bounds[checked] <= record.utility_values[checked] + 1e-9).all()
    alone = 2500 * (cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0])
    assert record.regret()[-1] < 0.6 * alone
    assert (agent.bounds()["incumbent"] >= cmdp.task.stated_utility).all()
    twin = boxed(cmdp.task)
    twin.restore(agent.state())
    np.testing.assert_array_equal(twin.plan().utility_bound, agent.plan().utility_bound)


def test_a_box_with_the_same_constraint_twice_keeps_it_like_one():
    one = es.make("streaming", 0)
    task = one.task
    twice = es.LinearCMDP(
        one.P, task.reward, [task.utility, task.utility], initial_state=0, threshold=[task.threshold] * 2,
        safe_policy=task.safe_policy,
    )  # fmt: skip
    records = [es.run(cmdp, boxed(cmdp.task), 1500) for cmdp in (one, twice)]
    regrets = [record.regret()[-1] for record in records]
    assert regrets[1] == pytest.approx(regrets[0], rel=0.25)
    assert not records[1].violating().any()


def test_what_voids_one_constraint_voids_all_and_nothing_can_be_promoted():
    """A total below its least total; what was proved of the other constraint proves no mixture."""
    P, reward, safe = np.zeros((2, 3, 2, 3)), np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    P[..., 1], reward[..., 1], safe[..., 0] = 1.0, 1.0, 1.0
    utilities = [np.full((2, 3, 2), 0.9)] * 2
    given = {"threshold": [1.0, 1.2], "slack": [0.8, 0.6], "least_total": [0.0, 1.0]}
    agent, rng = (
        observing(es.LinearCMDP(P, reward, utilities, safe_policy=safe, **given).task),
        np.random.default_rng(0),
    )
    session = es.open(None, agent=agent, false_alarm=0)

    def report(total):
        deployed = session.deploy(rng)
        actions = [deployed.policy.act(h, h, rng) for h in range(2)]
        session.learn(es.Episode([0, 1, 1], actions, utilities=np.array([[0.9, total]] * 2)), deployment=deployed.id)

    for _ in range(80):
        report(0.9)
    proved = next(name for name, bound in agent.bounds().items() if name != "incumbent" and (bound > [1.0, 1.2]).all())
    report(0.1)
    assert agent.void and list(agent.bounds()) == ["incumbent"]
    session.resume_exploring("it was the sensor")
    with pytest.raises(ValueError, match="cannot be promoted"):
        session.promote(proved, "it was good")
    assert session.deploy(rng).plan.source == "safe" and session.status().promoted == "incumbent"


def test_fresh_data_keeps_every_constraint_and_goes_on_from_its_state():
    cmdp = es.make("tabular", 4, num_constraints=2)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.FreshData(0.05))
    record = es.run(cmdp, agent, 4_000, seed=4)
    assert record.violating().sum() == 0 and (record.utility_bounds <= record.utility_values + 1e-9).all()
    assert record.reward_values[-1] > record.reward_values[0]
    assert agent.bounds()["incumbent"].shape == (2,)
    again = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.FreshData(0.05))
    again.restore(agent.state())
    first, second = (es.run(cmdp, one, 1_000, seed=5) for one in (agent, again))
    np.testing.assert_array_equal(first.utility_values, second.utility_values)


def test_fresh_data_pays_for_every_constraint():
    """δ' is that of one constraint, divided by their number."""
    terms = []
    for m in (1, 2):
        certificate = es.certify.FreshData(0.05).begin(es.make("tabular", 7, num_constraints=m).task)
        certificate.num_epochs = 1
        terms.append(certificate._log_term())
    assert terms[1] - terms[0] == pytest.approx(np.log(2))


@pytest.mark.parametrize("seed", range(3))
def test_dope_with_several_constraints_solves_its_problem(seed):
    """In a box of one kernel it is the exact optimum; and with a box, each constraint is checked."""
    cmdp = es.make("tabular", seed, num_constraints=2)
    task, box = cmdp.task, KernelBox(cmdp.P, cmdp.P, np.zeros(cmdp.task.reward.shape))
    bound, parts, _ = optimistic_pessimistic_of_several(
        task.reward, task.utilities, box, np.array(task.limits), task.initial_state
    )
    policy = markov_table(box, parts, task.initial_state)
    assert cmdp.evaluate(policy)[0] == pytest.approx(cmdp.optimal_value(), abs=1e-7)
    assert (bound >= task.limits).all() and len(parts) <= 6
    np.testing.assert_allclose(cmdp.evaluate(policy)[1], bound, atol=1e-9)


def test_dope_with_several_constraints_runs():
    cmdp = es.make("tabular", 1, num_constraints=2)
    record = es.run(cmdp, es.DOPE(cmdp.task, es.Constants.paper("tabular", "dope"), es.Doubling(0.7)), 300)
    assert record.utility_bounds.shape == (300, 2) and set(record.sources) <= {"safe", "search"}


def test_dope_with_the_same_constraint_twice_solves_the_problem_of_one():
    cmdp = es.make("tabular", 2)
    task, agent = cmdp.task, es.DOPE(cmdp.task, es.Constants.paper("tabular", "dope"))
    es.run(cmdp, agent, 300)
    box = agent.learner.box(agent.radius)
    reward, utility = task.reward + 0.01 * box.bonus, task.utility - 0.01 * box.bonus
    one = optimistic_pessimistic(reward, utility, box, task.threshold, task.initial_state)
    limits, both = np.full(2, task.threshold), np.stack([utility, utility])
    bound, parts, lams = optimistic_pessimistic_of_several(reward, both, box, limits, task.initial_state)
    most = sum(share * signal_values(reward[None], box, pair, task.initial_state)[0] for share, pair in parts)
    assert most == pytest.approx(one[0], abs=1e-7) and (bound >= task.threshold).all()
    assert lams.sum() == pytest.approx(one[3], abs=1e-4)


# ---- coverage, and controls that must fail; `benchmarks/several.py coverage` has hundreds of runs


def wrong_runs(certifier, num_episodes, spoil=lambda agent: None, num_runs=8):
    """Runs of two constraints in which a bound of what was deployed or certified was above the truth in either."""
    wrong = 0
    for seed in range(num_runs):
        cmdp = es.make("tabular", 900 + seed, num_constraints=2)
        agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier)
        spoil(agent)
        record = es.run(cmdp, agent, num_episodes, seed)
        agent.plan()
        found = [(record.utility_bounds > record.utility_values + 1e-9).any()]
        for name, bound in agent.bounds().items():
            policy = agent.certificate.certified if name == "certified" else agent.policy_named(name)
            found.append((bound > cmdp.evaluate(policy)[1] + 1e-9).any())
        wrong += any(found)
    return wrong


def all_of_delta(agent):
    """Each of the first candidates has δ_j ≥ 1 in each constraint."""
    agent.certificate = ObservationCertificate(agent.task, 40.0)


def no_share(agent):
    """Each of many bounds has δ' = 1 for itself."""
    agent.certificate._log_term = lambda: 0.0


@pytest.mark.parametrize(
    ("certifier", "num_episodes", "spoil"),
    [
        (es.certify.Observation(0.05), 300, all_of_delta),
        (es.certify.Box(0.05), 100, no_share),
        (es.certify.FreshData(0.05), 510, no_share),
    ],
    ids=["observation", "box", "fresh data"],
)
def test_every_bound_of_two_constraints_covers_and_careless_ones_do_not(certifier, num_episodes, spoil):
    assert wrong_runs(certifier, num_episodes) == 0
    assert wrong_runs(certifier, num_episodes, spoil) >= 2


@pytest.mark.parametrize("kind", ["model", "observation", "fresh-data", "box", "bandit", "rollout"])
def test_a_folder_that_is_closed_before_the_first_plan_opens_again(kind, tmp_path):
    """Of no plans the bounds had another shape than was asked for, also by who learns all again: no folder opened."""
    task = es.make("tabular", 0, num_constraints=2).task

    def build():
        certifiers = {"observation": es.certify.Observation, "fresh-data": es.certify.FreshData, "box": es.certify.Box}
        if kind == "rollout":
            return es.Rollout([0.5, 0.5], [0.3, 0.3], {"v2": "v2"}, "v1", utility_max=1.0)
        if kind == "bandit":
            arms = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
            told = es.bandits.BanditTask(2, arms, [0.35, 0.3], [0, 1, 0], [0.4, 0.2], 0.1, 1.0)
            return es.bandits.OPLBSP(told, radius="determinant")
        return (
            es.OPSE(task, constants(), certifier=certifiers[kind]()) if kind != "model" else es.OPSE(task, constants())
        )

    agent = build()
    build().restore(agent.state())
    session = es.open(tmp_path, agent)
    session.halt("maintenance")
    session._journal._checkpointed -= 10  # long ago, so that closing writes one
    session.close()
    assert list(tmp_path.glob("checkpoint-*")) or kind in ("observation", "rollout")
    with es.open(tmp_path, build()) as session:
        assert session.stopped == "halted: maintenance"


@pytest.mark.parametrize("kind", ["observation", "roomier", "rollout"])
def test_several_limits_are_opened_by_their_checkpoint_as_by_all_their_frames(kind, tmp_path):
    """The ledger's arrays had names that no file takes: none was ever written, and every opening learned all again."""
    cmdp, rng = es.make("tabular", 2, num_constraints=2), np.random.default_rng(0)

    def build():
        if kind == "rollout":
            return es.Rollout([0.5, 0.5], [0.3, 0.3], {"v2": "v2", "v3": "v3"}, "v1", utility_max=1.0)
        certifier = es.certify.Observation() if kind == "observation" else es.certify.Roomier()
        return es.OPSE(cmdp.task, es.Constants.proposing(), certifier=certifier)

    session = es.open(tmp_path / "live", build())
    for k in range(150):
        made = session.deploy(rng)
        if kind == "rollout":
            episode = es.Episode.of_totals([float(rng.random() < 0.9), float(rng.random() < 0.8)])
        else:
            states, actions = [cmdp.task.initial_state], []
            for h in range(4):
                actions.append(made.policy.act(h, states[-1], rng))
                states.append(rng.choice(5, p=cmdp.P[h, states[-1], actions[-1]]))
            utilities = cmdp.task.utilities[:, np.arange(4), states[:-1], actions].T
            episode = es.Episode(np.array(states), np.array(actions), utilities=utilities, component=made.component)
        if k % 20 != 7:  # some are missing
            session.learn(episode, deployment=made.id)
    state = {name: array.tobytes() for name, array in session.agent.state().items()}
    session._journal._checkpointed -= 10
    session.close()
    shutil.copytree(tmp_path / "live", tmp_path / "bare")
    assert list((tmp_path / "live").glob("checkpoint-*"))
    for file in (tmp_path / "bare").glob("checkpoint-*"):
        file.unlink()
    plans = []
    for folder in ("live", "bare"):
        with es.open(tmp_path / folder, build()) as again:
            assert {name: array.tobytes() for name, array in again.agent.state().items()} == state
            plans.append([np.asarray(again.plan().utility_bound).tolist() for _ in range(3)])
        assert es.audit(tmp_path / folder, agent=build()).is_whole
    assert plans[0] == plans[1]
