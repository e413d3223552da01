"""The compiled planner against a naive transcription of the definitions, on random data."""

from dataclasses import replace

import numpy as np
import pytest

import episafe as es
import oracles
from conftest import constants


def learned(agent, episodes):
    for states, actions in episodes:
        agent.learn(es.Episode(states, actions))
    return agent


def random_setting(rng, draw_cmdp, d):
    S, A, H = int(rng.integers(2, 7)), int(rng.integers(2, 4)), int(rng.integers(1, 5))
    cmdp, raw = draw_cmdp(rng, S, A, H, d)
    chosen = constants(
        C_r=rng.uniform(0, 1),
        C_u=rng.choice([0.05, 0.3, 1.0]),
        C_dagger=rng.uniform(0, 1),
        B_dagger=rng.uniform(0, 1),
        kappa=rng.choice([0.02, 0.1, 1.0]),
        num_halvings=int(rng.integers(18, 30)),
        ridge=rng.choice([0.3, 1.0]),
        curve=rng.choice([0.0, 2.0]),
        spread=rng.choice([0.0, 1.0]),
    )
    behaviour = rng.dirichlet(np.ones(A), (H, S))
    episodes = oracles.random_episodes(rng, raw, behaviour, int(rng.integers(0, 150)))
    return cmdp, raw, chosen, episodes


def assert_same_plan(plan, naive):
    assert plan.source == naive.source
    np.testing.assert_allclose(plan.lam, naive.lam, rtol=0, atol=1e-9, equal_nan=True)
    assert plan.utility_bound == pytest.approx(naive.utility_bound, abs=1e-9)
    np.testing.assert_allclose(plan.policy.table(), naive.policy, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("d", [None, 4])
def test_opse_equals_the_naive_transcription_of_algorithm_2(seed, d, draw_cmdp):
    cmdp, raw, chosen, episodes = random_setting(np.random.default_rng(seed), draw_cmdp, d)
    task = cmdp.task
    naive = oracles.opse_plan(
        raw["phi"], task.reward, task.utility, episodes, chosen, task.threshold, task.initial_state,
        task.safe_policy.table(),
    )  # fmt: skip
    assert_same_plan(learned(es.OPSE(task, chosen), episodes).plan(), naive)


@pytest.mark.parametrize("seed", range(40, 60))
@pytest.mark.parametrize("d", [None, 4])
def test_ghosh_equals_the_naive_transcription(seed, d, draw_cmdp):
    cmdp, raw, chosen, episodes = random_setting(np.random.default_rng(seed), draw_cmdp, d)
    task = cmdp.task
    naive = oracles.ghosh_plan(
        raw["phi"], task.reward, task.utility, episodes, chosen, task.threshold, task.initial_state
    )
    assert_same_plan(learned(es.Ghosh2024(task, chosen), episodes).plan(), naive)


@pytest.mark.slow
@pytest.mark.parametrize("d", [None, 4])
def test_both_equal_their_transcriptions_on_two_hundred_problems(d, draw_cmdp):
    for seed in range(1000, 1200):
        test_opse_equals_the_naive_transcription_of_algorithm_2(seed, d, draw_cmdp)
        test_ghosh_equals_the_naive_transcription(seed, d, draw_cmdp)


def test_the_settings_above_reach_every_branch_of_algorithm_2(draw_cmdp):
    sources = []
    for seed in range(40):
        cmdp, _, chosen, episodes = random_setting(np.random.default_rng(seed), draw_cmdp, None)
        sources.append(learned(es.OPSE(cmdp.task, chosen), episodes).plan().source)
    assert min(sources.count(source) for source in ("safe", "zero", "search")) >= 3


@pytest.mark.parametrize(("d", "A"), [(None, 3), (4, 3), (8, 4), (19, 6)])
def test_probabilities_at_any_state_are_the_rows_of_the_table(d, A, draw_cmdp):
    rng = np.random.default_rng(3)
    cmdp, raw = draw_cmdp(rng, S=30, A=A, H=3, d=d)
    episodes = oracles.random_episodes(rng, raw, np.full((3, 30, A), 1 / A), 20)  # most states stay unseen
    policy = learned(es.Ghosh2024(cmdp.task, constants()), episodes).plan().policy
    rows = np.array([[policy.probabilities(h, s) for s in range(30)] for h in range(3)])
    np.testing.assert_allclose(
        rows, policy.table(), rtol=0, atol=1e-12
    )  # sums in another order, at one state at a time
    np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-12)
    with pytest.raises(ValueError, match="step"):
        policy.probabilities(3, 0)


def test_a_plan_is_not_changed_by_what_is_learned_later(draw_cmdp):
    rng = np.random.default_rng(4)
    for d in (None, 4):
        cmdp, raw = draw_cmdp(rng, S=6, d=d)
        episodes = oracles.random_episodes(rng, raw, np.full((3, 6, 3), 1 / 3), 60)
        agent = learned(es.Ghosh2024(cmdp.task, constants()), episodes[:20])
        policy = agent.plan().policy
        untouched = learned(es.Ghosh2024(cmdp.task, constants()), episodes[:20]).plan().policy.table()
        learned(agent, episodes[20:])
        rows = np.array([[policy.probabilities(h, s) for s in range(6)] for h in range(3)])
        np.testing.assert_allclose(rows, untouched, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(policy.table(), untouched)


def test_rotated_one_hot_features_plan_alike(draw_cmdp):
    """phi=None and a rotation of the identity are the same problem by two code paths: counts, and d×d matrices."""
    rng = np.random.default_rng(5)
    cmdp, raw = draw_cmdp(rng, S=5, scale=0.8)
    task = cmdp.task
    rotation = np.linalg.qr(np.random.default_rng(6).normal(size=(15, 15)))[0]
    full = es.LinearCMDP(
        raw["P"], raw["reward"], raw["utility"], raw["phi"] @ rotation, raw["initial_state"], threshold=task.threshold
    )
    assert full.task.phi is not None
    episodes = oracles.random_episodes(rng, raw, np.full((3, 5, 3), 1 / 3), 2500)  # past the refactoring
    plans = [learned(es.OPSE(t, constants(kappa=0.02)), episodes).plan() for t in (task, full.task)]
    assert plans[0].source == plans[1].source == "search"
    assert plans[0].utility_bound == pytest.approx(plans[1].utility_bound, abs=1e-10)
    np.testing.assert_allclose(plans[0].policy.table(), plans[1].policy.table(), atol=1e-9)


@pytest.mark.parametrize("ridge", [1e-8, 1e-4, 1.0])
def test_a_small_ridge_loses_no_digits_to_rank_one_updates(ridge, draw_cmdp):
    rng = np.random.default_rng(8)
    cmdp, raw = draw_cmdp(rng, S=6, d=4)
    agent = es.Ghosh2024(cmdp.task, constants(ridge=ridge))
    for states, actions in oracles.random_episodes(rng, raw, np.full((3, 6, 3), 1 / 3), 256):
        agent.learn(es.Episode(states, actions))
    model = agent.planner.regression.model
    np.testing.assert_allclose(model.gram_inv, np.linalg.inv(model.gram), rtol=1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        lambda t: {"constraint": replace(t.constraint, utility=t.utility[:2])},
        lambda t: {"constraint": replace(t.constraint, utility=5 * t.utility + 1)},
        lambda t: {"constraint": replace(t.constraint, threshold=float("nan"))},
        lambda t: {"constraint": replace(t.constraint, slack=0.0)},
        lambda t: {"num_states": 4_000_000},
        lambda t: {"initial_state": 99},
        lambda t: {"constraint": replace(t.constraint, threshold=50.0)},
        lambda t: {"reward": t.reward * np.nan},
        lambda t: {"safe_policy": es.TablePolicy(np.full((2, 2, 2), 0.5))},
    ],
)
def test_a_task_that_does_not_fit_together_is_refused(changes):
    """The kernels trust the shapes of a task, so a task is checked when it is made, however it is made."""
    task = es.make("tabular", seed=1).task
    with pytest.raises(es.InvalidProblem):
        replace(task, **changes(task))


def test_a_policy_refuses_states_and_steps_that_do_not_exist(draw_cmdp):
    cmdp, _ = draw_cmdp(np.random.default_rng(9))
    for policy in (es.Ghosh2024(cmdp.task, constants()).plan().policy, cmdp.task.safe_policy):
        for h, state in ((-1, 0), (3, 0), (0, -1), (0, 4)):
            with pytest.raises(ValueError, match="must be a whole number in"):
                policy.probabilities(h, state)
        with pytest.raises(ValueError, match="read-only"):
            policy.table()[0, 0] = 9


def test_planning_depends_on_visited_states_only():
    """Same data, a hundred times the states: the same bound from arrays of the same size."""
    rng = np.random.default_rng(6)
    cmdp = es.make("linear", seed=1, num_states=30)
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    episodes = oracles.random_episodes(rng, raw, np.full((4, 30, 3), 1 / 3), 50)

    def padded(array):
        return np.pad(array, ((0, 0), (0, 2970), (0, 0)))

    task = cmdp.task
    large = replace(
        task,
        num_states=3000,
        reward=padded(task.reward),
        phi=np.pad(task.phi, ((0, 2970), (0, 0), (0, 0))),
        constraint=replace(task.constraint, utility=padded(task.utility)),
        safe_policy=es.TablePolicy(np.full((4, 3000, 3), 1 / 3)),
    )
    few, many = (learned(es.OPSE(task, es.Constants.paper("linear")), episodes) for task in (cmdp.task, large))
    assert few.plan().utility_bound == many.plan().utility_bound
    known = [agent.planner.regression for agent in (few, many)]
    arrays = [(*one.support, *one.model, *one.work[:-1], *one.work.rest) for one in known]
    assert [array.shape for array in arrays[0]] == [array.shape for array in arrays[1]]
    assert known[1].support.size.max() < 30
