"""The softmax algorithms: NumPy files, compiled versions, independent transcriptions, and closed forms."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import episafe as es
import oracles
from episafe.algorithms import ghosh2022, ghosh2024, lsvi_ucb, opse
from episafe.core.task import FunctionFeatures, OneHot
from episafe.linear import planner, theory
from episafe.linear.ridge import SoftmaxModel
from episafe.simulation import run as run_module


def constants(**changes):
    given = {"C_r": 0.3, "C_u": 0.2, "C_dagger": 0.1, "B_dagger": 0.2, "kappa": 0.1, "lam_max": 300, "num_halvings": 24}
    return es.Constants(**(given | changes))


def random_constants(rng, **changes):
    drawn = {
        "C_r": rng.uniform(0, 1), "C_u": rng.choice([0.05, 0.3, 1.0]), "C_dagger": rng.uniform(0, 1),
        "B_dagger": rng.uniform(0, 1), "kappa": rng.choice([0.02, 0.1, 1.0]),
        "num_halvings": int(rng.integers(18, 30)), "ridge": rng.choice([0.3, 1.0]),
        "curve": rng.choice([0.0, 2.0]), "spread": rng.choice([0.0, 1.0]),
    }  # fmt: skip
    return constants(**(drawn | changes))


def draw(seed, d=None, m=1, homogeneous=False, hidden=False, scale=0.6):
    """Return a random problem, its raw arrays, and up to 150 episodes of a random policy."""
    rng = np.random.default_rng(seed)
    S, A, H = int(rng.integers(2, 7)), int(rng.integers(2, 4)), int(rng.integers(1, 5))
    raw = oracles.random_cmdp(rng, S, A, H, d)
    if homogeneous:
        raw["P"] = np.broadcast_to(raw["P"][0].copy(), raw["P"].shape)
    utility = [raw["utility"], *rng.random((m - 1, H, S, A))]
    cmdp = es.LinearCMDP(
        raw["P"], raw["reward"], utility if m > 1 else utility[0], None if d is None else raw["phi"],
        raw["initial_state"], threshold_share=scale, time_homogeneous=homogeneous,
    )  # fmt: skip
    behaviour = rng.dirichlet(np.ones(A), (H, S))
    episodes = oracles.random_episodes(rng, raw, behaviour, int(rng.integers(0, 150)))
    return rng, cmdp.without_signals() if hidden else cmdp, raw, episodes


def observed(cmdp, model, episodes):
    """Let a model learn from episodes, with their signals."""
    for states, actions in episodes:
        at = np.arange(len(actions)), states[:-1], actions
        told = cmdp._reward[at], np.stack([u[at] for u in cmdp._utilities], axis=1)
        model.observe(cmdp.task.read(es.Episode(states, actions, *told)))
    return model


def assert_same(found, expected, atol=1e-10):
    assert found.source == expected.source
    np.testing.assert_allclose(found.lam, expected.lam, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.bounds, expected.bounds, rtol=0, atol=atol)
    assert (found.policy is None) == (expected.policy is None)
    if found.policy is not None:
        np.testing.assert_allclose(found.policy.table(), expected.policy.table(), rtol=0, atol=1e-9)


# the compiled search is the NumPy one

KINDS = {
    "one-hot": {}, "features": {"d": 4}, "two limits": {"m": 2}, "features, two limits": {"d": 4, "m": 2},
    "learned signals": {"hidden": True}, "features, learned": {"d": 4, "hidden": True},
    "homogeneous": {"homogeneous": True}, "features, homogeneous": {"d": 4, "homogeneous": True, "m": 2},
}  # fmt: skip


def several(model, chosen, rules, module):
    """Return the decision for several limits by the readable search."""
    model.estimate_signals(chosen.curve)
    source, lam = oracles.search_several(
        lambda lam: module.evaluate(model, chosen, rules, lam).V,
        model.task.thresholds, chosen.lam_max, chosen.num_halvings, rules,
    )  # fmt: skip
    source = "safe" if rules.incumbent_first and model.num_episodes == 0 else source
    found = module.evaluate(model, chosen, rules, lam)
    policy = None if source == "safe" else opse.as_policy(model, chosen, rules, found)
    return planner.Decision(source, lam, found.V[2:], policy)


@pytest.mark.parametrize("rules", ["TEXT", "RELEASED", "GHOSH", "GHOSH_RELEASED"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_decision_is_that_of_the_numpy_file(kind, rules):
    chosen, module = getattr(planner, rules), opse if rules in ("TEXT", "RELEASED") else ghosh2024
    shapes = {} if rules in ("TEXT", "GHOSH") else {"curve": 0.0, "spread": 0.0}
    for seed in range(8):
        rng, cmdp, _, episodes = draw(seed, **KINDS[kind])
        c = random_constants(rng, **shapes)
        model = observed(cmdp, SoftmaxModel(cmdp.task, c.ridge, 0.5, not chosen.pessimistic), episodes)
        expected = (
            module.decide(model, c, chosen) if len(model.task.constraints) == 1 else several(model, c, chosen, module)
        )
        for _ in range(2):  # the second search starts from what the first found, which must not matter
            assert_same(planner.decide(model, c, chosen), expected)


@pytest.mark.parametrize("kind", ["one-hot", "features", "two limits", "learned signals"])
def test_the_compiled_forms_of_the_peers_are_those_of_their_files(kind):
    for seed in range(6):
        _, cmdp, _, episodes = draw(seed, **KINDS[kind])
        for agent, search in (
            (es.Ghosh2022(cmdp.task, 100, bonus=0.01), lambda a: ghosh2022.decide(a.model, a.constants, a.lam.copy())),
            (es.LSVIUCB(cmdp.task, 100, bonus=0.01), lambda a: lsvi_ucb.decide(a.model, a.constants)),
        ):
            observed(cmdp, agent.model, episodes)
            expected = search(agent)
            plan = agent.plan()
            assert plan.source == expected.source
            np.testing.assert_allclose(plan.bounds, expected.bounds, rtol=0, atol=1e-9)
            atol = 1e-9 if isinstance(agent, es.Ghosh2022) else 1e-4  # κ = 1e-10 magnifies rounding a million times
            np.testing.assert_allclose(plan.policy.table(), expected.policy.table(), rtol=0, atol=atol)


def test_the_multiplier_of_ghosh_2022_is_stepped_and_bounded():
    _, cmdp, _, episodes = draw(3)
    agent = es.Ghosh2022(cmdp.task, 100, bonus=0.001)
    H, chi, lam = cmdp.task.horizon, 2 * cmdp.task.horizon / cmdp.task.slacks[0], 0.0
    for states, actions in episodes[:20]:
        plan = agent.plan()
        assert plan.lam == pytest.approx(lam, abs=1e-12)
        lam = min(max(0.0, lam + 10 / (H * math.sqrt(100)) * (cmdp.task.thresholds[0] - plan.bounds[0])), chi)
        agent.learn(es.Episode(states, actions))


def test_a_subclass_plans_by_the_numpy_file(monkeypatch):
    class Own(es.OPSE):
        pass

    _, cmdp, _, _ = draw(1)
    calls = []
    monkeypatch.setattr(opse, "decide", lambda *given: calls.append(given) or planner.decide(*given))
    es.OPSE(cmdp.task, constants()).plan()
    assert not calls
    Own(cmdp.task, constants()).plan()
    assert len(calls) == 1


# independent transcriptions


def known(cmdp, raw, episodes, chosen):
    task = cmdp.task
    return raw["phi"], task.reward, task.utilities[0], episodes, chosen, task.thresholds[0], task.initial_state


def plan_of(agent, episodes):
    for states, actions in episodes:
        agent.learn(es.Episode(states, actions))
    return agent.plan()


def assert_same_plan(plan, naive):
    assert plan.source == naive.source
    np.testing.assert_allclose(plan.lam, naive.lam, rtol=0, atol=1e-9, equal_nan=True)
    assert plan.bounds[0] == pytest.approx(naive.utility_bound, abs=1e-9)
    np.testing.assert_allclose(plan.policy.table(), naive.policy, rtol=0, atol=1e-9)


@pytest.mark.parametrize("d", [None, 4])
@pytest.mark.parametrize("seed", range(12))
def test_opse_and_ghosh_are_their_transcriptions(seed, d):
    rng, cmdp, raw, episodes = draw(seed, d)
    chosen = random_constants(rng)
    given, table = known(cmdp, raw, episodes, chosen), cmdp.task.incumbent.table()
    assert_same_plan(plan_of(es.OPSE(cmdp.task, chosen), episodes), oracles.opse_plan(*given, table))
    assert_same_plan(plan_of(es.Ghosh2024(cmdp.task, chosen), episodes), oracles.ghosh_plan(*given))


@pytest.mark.parametrize("d", [None, 4])
@pytest.mark.parametrize("seed", range(12))
def test_the_released_rules_are_the_transcription_of_the_released_code(seed, d):
    rng, cmdp, raw, episodes = draw(seed, d)
    chosen = random_constants(rng, curve=0.0, spread=0.0)
    given, table = known(cmdp, raw, episodes, chosen), cmdp.task.incumbent.table()
    for kind, pessimistic in ((es.OPSE, True), (es.Ghosh2024, False)):
        naive = oracles.released_plan(*given, table, pessimistic)
        assert_same_plan(plan_of(kind(cmdp.task, chosen, variant="released"), episodes), naive)


@pytest.mark.slow
@pytest.mark.parametrize("d", [None, 4])
def test_all_are_their_transcriptions_on_two_hundred_problems(d):
    for seed in range(1000, 1200):
        test_opse_and_ghosh_are_their_transcriptions(seed, d)
        test_the_released_rules_are_the_transcription_of_the_released_code(seed, d)


def test_the_random_problems_reach_every_branch_of_algorithm_2():
    sources = []
    for seed in range(40):
        rng, cmdp, _, episodes = draw(seed)
        sources.append(plan_of(es.OPSE(cmdp.task, random_constants(rng)), episodes).source)
    assert min(sources.count(source) for source in ("safe", "zero", "search")) >= 3


# closed forms; those marked * fail by the released rules


def flat(S=1, A=3, H=4, reward=None):
    """Return a problem in which every action leads to state 0; reward 0 unless given, utility 1."""
    P = np.zeros((H, S, A, S))
    P[..., 0] = 1
    return es.LinearCMDP(P, np.zeros((H, S, A)) if reward is None else reward, np.ones((H, S, A)), threshold=0.5)


def evaluated(model, chosen, lam, rules=planner.TEXT):
    """Return π^λ, V̲ᵘ(s₁) and the values V (G, 8 λ) or (G,) at s₁ of the compiled recursion."""
    search = rules.search(chosen, model.task.thresholds)._replace(step=0.0, dual=np.array([float(lam)]))
    found = planner.searched(model, rules.scales(chosen, model.num_actions), search)
    return found.policy.table(), found.bounds[0], model.work.V[0, :, model.work.lane[0]]


@pytest.mark.parametrize("kappa", [0.01, 0.1, 2.0])
@pytest.mark.parametrize("A", [2, 7])
def test_zero_reward_gives_the_entropy_of_the_uniform_policy(kappa, A):
    """* V₁[κ] = κH ln A and π uniform, with so much data that the ridge does not show."""
    cmdp = flat(A=A)
    model = SoftmaxModel(cmdp.task, 1e-12)
    observed(cmdp, model, [(np.zeros(5, dtype=np.int64), np.full(4, a)) for a in range(A)])
    silent = es.Constants(0, 0, 0, 0, kappa=kappa, lam_max=300, num_halvings=40, ridge=1e-12)
    table, _, V = evaluated(model, silent, 0.0)
    assert V[0] == pytest.approx(kappa * 4 * math.log(A), rel=1e-9)
    np.testing.assert_allclose(table, 1 / A, atol=1e-12)
    assert evaluated(model, silent, 0.0, planner.RELEASED)[2][0] != pytest.approx(kappa * 4 * math.log(A), rel=1e-3)


def test_at_the_last_step_q_is_the_reward_whatever_the_bonus():
    """* The limit H − h is 0 there: π_H = softmax(r/κ) although the bonuses of the actions differ."""
    reward = np.array([[[0.2, 0.5, 0.9]]])
    cmdp, chosen = flat(H=1, reward=reward), constants(C_r=0.5, C_u=0.5, C_dagger=0.5, B_dagger=0.0)
    model = observed(cmdp, SoftmaxModel(cmdp.task), [(np.zeros(2, dtype=np.int64), np.array([1]))] * 9)
    table, bound, _ = evaluated(model, chosen, 0.0)
    expected = np.exp(reward / 0.1) / np.exp(reward / 0.1).sum()
    np.testing.assert_allclose(table, expected, atol=1e-12)
    assert bound == pytest.approx(1.0, abs=1e-15)
    assert np.abs(evaluated(model, chosen, 0.0, planner.RELEASED)[0] - expected).max() > 0.01


@pytest.mark.parametrize("ridge", [0.5, 3.0])
def test_one_hot_features_give_counts(ridge):
    """β = (n + ρ)^{-1/2}, P̂V = Σ n(s,a,s')V(s')/(n(s,a) + ρ) and ln det Λ, also for rotated unit vectors."""
    rng, cmdp, raw, episodes = draw(5)
    H, S, A = cmdp.task.reward.shape
    rotation = np.linalg.qr(rng.normal(size=(S * A, S * A)))[0].reshape(S, A, S * A)
    turned = es.LinearCMDP(raw["P"], raw["reward"], raw["utility"], rotation, raw["initial_state"], threshold=0.1)
    n = np.zeros((H, S, A, S))
    for states, actions in episodes:
        np.add.at(n, (np.arange(H), states[:-1], actions, states[1:]), 1)
    for problem in (cmdp, turned):
        model = observed(problem, SoftmaxModel(problem.task, ridge), episodes)
        for h in range(H):
            state, V = model.slots.state_of[h, :S], rng.normal(size=(1, S))
            visits = n[h].sum(axis=-1)[state].T
            np.testing.assert_allclose(model.bonus(h), (visits + ridge) ** -0.5, atol=1e-10)
            if h < H - 1:
                expected = np.einsum("sat,t->sa", n[h], V[0]) / (n[h].sum(axis=-1) + ridge)
                after = V[:, model.slots.state_of[h + 1, :S]]
                np.testing.assert_allclose(model.next_value(h, after)[0], expected[state].T, atol=1e-10)
        log_det = np.log((n.sum(axis=-1) + ridge) / ridge).sum(axis=(1, 2))
        np.testing.assert_allclose(model.information(), log_det, atol=1e-9)


@pytest.mark.parametrize(("lam", "target"), [(0.0, "reward"), (1e6, "utility")])
def test_small_kappa_is_greedy_for_reward_at_zero_and_for_utility_at_large_lambda(lam, target, draw_cmdp):
    cmdp, raw = draw_cmdp(np.random.default_rng(2), S=4, A=3, H=1)
    cold = es.Constants(0, 0, 0, 0, kappa=1e-4, lam_max=1e9, num_halvings=50)
    table, _, _ = evaluated(SoftmaxModel(cmdp.task), cold, lam)
    np.testing.assert_array_equal(table[0].argmax(axis=1), raw[target][0].argmax(axis=1))
    np.testing.assert_allclose(table[0].max(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("m", [1, 2])
def test_an_exact_model_without_bonus_and_with_small_kappa_finds_the_optimum(m):
    """On a deterministic kernel that is known, the search ends at the optimum of the linear program."""
    rng, H, S, A = np.random.default_rng(3), 3, 3, 2
    P = np.eye(S)[rng.integers(S, size=(H, S, A))]
    reward, *utility = rng.random((1 + m, H, S, A))
    cmdp = es.LinearCMDP(P, reward, utility if m > 1 else utility[0], threshold_share=0.8)
    model = SoftmaxModel(cmdp.task, 1e-9)
    for actions in np.ndindex(*(A,) * H):
        states = [0]
        for h, a in enumerate(actions):
            states.append(int(P[h, states[-1], a].argmax()))
        observed(cmdp, model, [(np.array(states), np.array(actions))])
    found = planner.decide(model, es.Constants(0, 0, 0, 0, kappa=1e-3, lam_max=300, num_halvings=50, ridge=1e-9))
    optimum = oracles.lp_optimum(P, reward, np.stack(utility), cmdp.task.thresholds, 0) if m > 1 else (
        oracles.lp_optimum(P, reward, utility[0], cmdp.task.thresholds[0], 0))  # fmt: skip
    assert found.source == "search"
    assert cmdp.evaluate(found.policy)[0] == pytest.approx(optimum, abs=3e-3 if m > 1 else 1e-4)


def test_nothing_known_means_the_incumbent_and_its_failed_bound():
    """Without data P̂ = 0, so that V̲ᵘ is the utility of the first step alone."""
    cmdp = es.make("streaming", seed=0)
    plan = es.OPSE(cmdp.task, es.Constants.paper("streaming")).plan()
    assert plan.source == "safe" and plan.policy is cmdp.task.incumbent and math.isnan(plan.lam)
    assert plan.bounds[0] == pytest.approx(1.0, abs=1e-9)  # λ = 300 makes it take slow service
    assert plan.reason and plan.level == "heuristic"


def test_the_utility_grows_with_lambda_on_an_exact_model_and_not_on_any():
    """Lemma "Softmax value monotonicity" at 1e9 visits in proportion. Control: large bonuses, whose clips bind."""
    drops, control = [], []
    for seed in range(12):
        _, cmdp, _, episodes = draw(seed)
        H, S, A = cmdp.task.reward.shape
        exact = SoftmaxModel(cmdp.task)
        for _ in range(4):
            exact.enlarge_transitions()
        every = [(np.full(H + 1, s), np.full(H, a)) for s in range(S) for a in range(A)]
        for target in range(S):  # each transition once, then its probability as the count
            observed(cmdp, exact, [(np.where(np.arange(H + 1) % 2, target, s), a) for s, a in every])
        own = exact.arrays
        for h in range(H):
            own.visits[h] = 1e9
            for t in range(own.num_transitions[h]):
                i, a = divmod(int(own.source[h, t]), A)
                s, then = exact.slots.state_of[h, i], exact.slots.state_of[min(h + 1, H - 1), own.target[h, t]]
                own.times[h, t] = 1e9 * cmdp.P[h, s, a, then]
        quiet, loud = (
            es.Constants(0, 0, 0, 0, kappa=0.1, lam_max=300, num_halvings=40),
            constants(C_r=2.0, C_u=0.1, C_dagger=2.0, B_dagger=1.0),
        )
        noisy = observed(cmdp, SoftmaxModel(cmdp.task), episodes[:20])
        for model, chosen, found in ((exact, quiet, drops), (noisy, loud.replace(kappa=0.05), control)):
            bounds = [
                opse.evaluate(model, chosen, planner.TEXT, np.array([lam])).V[2:] for lam in np.linspace(0, 20, 40)
            ]
            found.append(np.diff(bounds, axis=0).min())
    assert min(drops) > -1e-6
    assert min(control) < -1e-4


# runs


@pytest.mark.parametrize("kind", ["one-hot", "features", "two limits", "features, homogeneous", "homogeneous"])
def test_the_compiled_loop_is_the_plain_loop(kind, monkeypatch):
    _, cmdp, _, _ = draw(7, **KINDS[kind])
    bold = constants(C_r=0.05, C_u=0.02, C_dagger=0.02, B_dagger=0.02, kappa=0.05)
    makers = [
        lambda: es.OPSE(cmdp.task, bold),
        lambda: es.OPSE(cmdp.task, bold, es.Doubling(0.3)),
        lambda: es.OPSE(cmdp.task, bold, variant="released"),
        lambda: es.Ghosh2024(cmdp.task, bold, variant="released"),
        lambda: es.Ghosh2022(cmdp.task, 600, bonus=0.001, replan=es.Doubling(0.1)),
        lambda: es.LSVIUCB(cmdp.task, 600, bonus=0.001),
    ]
    monkeypatch.setattr(run_module, "FIRST_BLOCK", 70)
    fast = [es.run(cmdp, make(), 150, seed=1) for make in makers]
    monkeypatch.setattr(run_module, "compiled_loops", dict)
    for make, one in zip(makers, fast, strict=True):
        plain = es.run(cmdp, make(), 150, seed=1)
        for name in ("sources", "plan_ids", "lams", "bounds", "reward_values", "utility_values"):
            np.testing.assert_array_equal(getattr(one, name), getattr(plain, name))


def test_learned_signals_run_in_the_plain_loop_and_are_safe_with_enough_bonus():
    _, cmdp, _, _ = draw(7)
    hidden = cmdp.without_signals()
    record = es.run(hidden, es.OPSE(hidden.task, constants(C_u=0.3), es.Doubling(0.3)), 300)
    assert record.violation()[-1] == 0
    assert "search" in record.sources


def test_no_violation_by_opse_and_some_by_ghosh():
    """The negative control of the check: the same planner without pessimism violates."""
    cmdp = es.make("tabular", seed=1)
    for variant in ("text", "released"):
        kinds = (es.OPSE, es.Constants.paper("tabular")), (es.Ghosh2024, es.Constants.paper("tabular", "ghosh"))
        safe, unsafe = (es.run(cmdp, kind(cmdp.task, c, es.Doubling(0.3), variant), 600) for kind, c in kinds)
        assert safe.violation()[-1] == 0 and "search" in safe.sources
        assert unsafe.violation()[-1] > 1


def test_the_first_episode_by_the_released_rules_is_the_incumbents():
    task = es.make("streaming").task
    agent = es.Ghosh2024(task, es.Constants.paper("streaming", "ghosh"), variant="released")
    assert agent.plan().source == "safe" and agent.plan().policy is task.incumbent
    agent.learn(es.Episode([0] * 5, [1] * 4))
    assert agent.plan().source == "search"


# states that are not listed


def unlisted(cmdp, features):
    """Return the task of a listed problem as one whose states have names, described by functions."""
    told, task, S = cmdp.task, cmdp.task, cmdp.task.num_states
    names = [(f"s{s}",) for s in range(S)]
    number = {name: s for s, name in enumerate(names)}
    limits = tuple(replace(one, utility=lambda h, s, u=one.utility: u[h, number[s]]) for one in task.constraints)
    incumbent = told.incumbent.table()
    made = es.Task(
        task.horizon, task.num_actions, limits, lambda h, s: incumbent[h, number[s]], names[task.initial_state],
        reward=lambda h, s: told.reward[h, number[s]],
        features=features(number), time_homogeneous=task.time_homogeneous,
    )  # fmt: skip
    return made, names


@pytest.mark.parametrize("d", [None, 4])
@pytest.mark.parametrize("module", [opse, planner])
def test_states_by_name_are_planned_like_listed_ones(d, module):
    for seed in range(6):
        rng, cmdp, raw, episodes = draw(seed, d)
        chosen = random_constants(rng)

        def features(number, raw=raw, d=d, cmdp=cmdp):
            if d is None:
                return OneHot(size=cmdp.task.num_states)
            return FunctionFeatures(lambda state: raw["phi"][number[state]], d)

        task, names = unlisted(cmdp, features)
        listed, named = SoftmaxModel(cmdp.task, chosen.ridge), SoftmaxModel(task, chosen.ridge)
        observed(cmdp, listed, episodes)
        for states, actions in episodes:
            named.observe(task.read(es.Episode([names[s] for s in states], actions)))
        expected, found = planner.decide(listed, chosen), module.decide(named, chosen)
        assert found.source == expected.source
        np.testing.assert_allclose(found.bounds, expected.bounds, atol=1e-10)
        if expected.policy is not None:  # also at states that were never visited
            rows = [[found.policy.probabilities(h, name) for name in names] for h in range(task.horizon)]
            np.testing.assert_allclose(rows, expected.policy.table(), atol=1e-9)


@pytest.mark.parametrize("d", [None, 4])
def test_a_saved_policy_with_learned_signals_acts_as_before(d):
    _, cmdp, raw, episodes = draw(3, d)

    def features(number):
        return OneHot(size=cmdp.task.num_states) if d is None else FunctionFeatures(lambda s: raw["phi"][number[s]], d)

    task, names = unlisted(cmdp, features)
    task = replace(task, reward=None, constraints=tuple(replace(one, utility=None) for one in task.constraints))
    model = SoftmaxModel(task, 0.5, signal_scale=0.0)
    for states, actions in episodes[:20]:
        at = np.arange(len(actions)), states[:-1], actions
        told = cmdp._reward[at], np.stack([u[at] for u in cmdp._utilities], axis=1)
        model.observe(task.read(es.Episode([names[s] for s in states], actions, *told)))
    policy = planner.decide(model, constants(C_u=0.0)).policy
    loaded = planner.load_softmax(json.loads(json.dumps(policy.document())), task)
    for h, name in itertools.product(range(task.horizon), names):
        np.testing.assert_array_equal(loaded.probabilities(h, name), policy.probabilities(h, name))


def test_planning_depends_on_visited_states_only():
    """The same data with a hundred times the states: the same bound, and no more states in the recursion."""
    rng, cmdp = np.random.default_rng(6), es.make("linear", seed=1, num_states=30)
    raw = {"P": cmdp.P, "initial_state": cmdp.task.initial_state}
    episodes = oracles.random_episodes(rng, raw, np.full((4, 30, 3), 1 / 3), 50)
    pad = ((0, 0), (0, 2970), (0, 0))
    task = cmdp.task
    large = replace(
        task, num_states=3000, reward=np.pad(task.reward, pad), encode=None,
        features=replace(task.features, phi=np.pad(task.features.phi, ((0, 2970), (0, 0), (0, 0)))),
        constraints=tuple(replace(one, utility=np.pad(one.utility, pad)) for one in task.constraints),
        incumbent=es.TablePolicy(np.full((4, 3000, 3), 1 / 3)),
    )  # fmt: skip
    few, many = (es.OPSE(one, es.Constants.paper("linear")) for one in (task, large))
    assert plan_of(few, episodes).bounds[0] == plan_of(many, episodes).bounds[0]
    np.testing.assert_array_equal(few.model.slots.size, many.model.slots.size)


def test_steps_that_are_the_same_share_their_arrays():
    S, A, H = 40, 5, 60
    rng = np.random.default_rng(0)
    P = np.broadcast_to(rng.dirichlet(np.ones(S), (S, A)), (H, S, A, S))
    reward, utility = (np.broadcast_to(rng.random((S, A)), (H, S, A)) for _ in range(2))
    cmdp = es.LinearCMDP(P, reward, utility, threshold_share=0.5, time_homogeneous=True)
    agent = es.OPSE(cmdp.task, constants())
    es.run(cmdp, agent, 5)
    model = agent.model
    assert cmdp.P.strides[0] == 0
    assert len(model.slots.reward) == len(model.slots.utility[0]) == len(model.arrays.visits) == 1


# what is refused, and what is promised


def test_what_proves_nothing_is_refused():
    task = es.make("tabular").task
    with pytest.raises(es.InvalidProblem, match="C_u is 0"):
        es.OPSE(task, es.Constants.proposing())
    with pytest.raises(es.InvalidProblem, match='variant must be "text" or "released"'):
        es.OPSE(task, constants(), variant="published")
    with pytest.raises(es.InvalidProblem, match="no curve and no spread"):
        es.Ghosh2024(task, constants(curve=1.0), variant="released")


def test_the_level_is_that_of_the_constants_and_their_scope_is_kept():
    cmdp = es.make("tabular")
    proved = es.Constants.theory(cmdp.task, num_episodes=20)
    agent = es.OPSE(cmdp.task, proved)
    assert agent.plan().level == agent.settings()["level"] == "theorem"
    assert "every policy deployed in 20 episodes is safe" in agent.settings()["statement"]
    assert es.OPSE(cmdp.task, proved.replace(C_r=1.0)).plan().level == "heuristic"
    assert es.OPSE(cmdp.task, proved, variant="released").settings()["statement"] == ""
    hidden = cmdp.without_signals()
    assert es.OPSE(hidden.task, proved).level == es.Ghosh2024(cmdp.task, proved).level == "heuristic"
    with pytest.raises(es.InvalidProblem, match="hold for 20 episodes"):
        es.run(cmdp, agent, 21)
    with pytest.raises(es.InvalidProblem, match="derived for"):
        es.OPSE(es.make("streaming").task, proved).plan()


def test_the_theorems_constants_satisfy_their_recipe():
    """C_λ ≥ 8H_κ²(B_† + 1)/ξ, κ ≤ ξ²/(32H_κ²(B_† + 1)), B_† = 4C_uH/ξ; C_u contains its own covering number."""
    task = es.make("tabular").task
    c, H, A, xi = es.Constants.theory(task, 10_000), task.horizon, task.num_actions, task.slacks[0]
    H_kappa = H * (1 + c.kappa * math.log(A))
    assert c.B_dagger == pytest.approx(4 * c.C_u * H / xi)
    assert c.lam_max == pytest.approx(8 * H_kappa**2 * (c.B_dagger + 1) / xi)
    assert c.kappa <= xi**2 / (32 * H_kappa**2 * (c.B_dagger + 1)) * (1 + 1e-9)
    sizes = c.scope
    cover = theory.ln_value_cover(sizes, theory.theorem(sizes), "u", 1 / sizes.num_samples)
    d, K = sizes.dim, sizes.num_episodes
    radius = H * (
        sizes.norm_bound + 2 * math.sqrt(d / 2 * math.log1p(K)) + 2 * math.sqrt(cover + math.log(3 * H / 0.05))
    )
    assert c.C_u == pytest.approx(radius + 4, rel=1e-9)
