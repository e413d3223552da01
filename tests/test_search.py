"""Other ways to look for λ: what they deploy is certified, and they are compared with bisection."""

import math
from collections import Counter

import numpy as np
import pytest

import episafe as es
from episafe.kernels import decision

CONSTANTS = es.Constants(1, 1, 1, 1, kappa=0.05, lam_max=100, num_halvings=25)


def _trained(name: str, search: object, episodes: int = 400) -> es.OPSE:
    cmdp = es.make(name, seed=2)
    agent = es.OPSE(cmdp.task, CONSTANTS, es.Doubling(0.3), search=search)  # type: ignore[arg-type]
    if episodes:
        es.run(cmdp, agent, episodes, seed=5)
    return agent


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("search", [es.WarmStart(1.3), es.Sections(9)])
def test_the_same_lam_where_the_bound_is_monotone(name: str, search: object) -> None:
    if name != "linear" and isinstance(search, es.Sections):
        pytest.skip("for features only")
    agent, plain = _trained(name, search), _trained(name, es.Bisection())
    for _ in range(3):  # the second and third begin warm
        ours, theirs = agent.planner.decide(), plain.planner.decide()
        assert ours.source == theirs.source
        np.testing.assert_allclose(ours.lam, theirs.lam, atol=3 * CONSTANTS.lam_max * 2.0**-CONSTANTS.num_halvings)
        assert ours.utility_bound >= agent.task.threshold
        assert ours.utility_bound == agent.planner.utility_bound(ours.lam)


@pytest.mark.parametrize("search", [es.WarmStart(), es.Sections(16)])
def test_zero_violation(search: object) -> None:
    cmdp = es.make("linear", seed=4)
    agent = es.OPSE(cmdp.task, es.Constants.paper("linear"), es.Doubling(0.3), search=search)  # type: ignore[arg-type]
    record = es.run(cmdp, agent, 2_000, seed=1)
    assert record.violation()[-1] == 0.0
    assert np.mean(record.sources == "search") > 0.5


def test_many_lams_at_once_equal_one_at_a_time() -> None:
    agent = _trained("linear", es.Bisection())
    planner = agent.planner
    planner.decide()
    lams = np.linspace(0, 5, 7)
    np.testing.assert_allclose(planner.utility_bounds(lams), [planner.utility_bound(lam) for lam in lams], atol=1e-12)


def test_a_warm_start_evaluates_half_as_often() -> None:
    counts = {}
    for search in (es.Bisection(), es.WarmStart(1.1)):
        agent = _trained("linear", search)
        agent.planner.decide()
        counts[search] = _evaluations(agent)
    assert counts[es.Bisection()] <= 2 + CONSTANTS.num_halvings + 1
    assert counts[es.WarmStart(1.1)] <= 0.65 * counts[es.Bisection()]


def test_with_counts_a_pass_over_the_states_serves_three_halvings() -> None:
    agent = _trained("tabular", es.Bisection())
    assert agent.planner.decide().source == decision.SEARCH
    assert _evaluations(agent) <= 1 + math.ceil((CONSTANTS.num_halvings - 1) / 3)


def _evaluations(agent: es.OPSE) -> int:
    """How often one decision goes through the states, counted in the uncompiled twin of `decide`."""
    count: Counter[str] = Counter()
    evaluate = decision.evaluate

    def counting(*arguments: object) -> None:
        count["evaluate"] += 1
        evaluate(*arguments)

    planner, known = agent.planner, agent.planner.regression
    arguments = known.model, known.support, known.work, planner.scales
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "evaluate", counting)
        decision.decide.py_func(*arguments, planner.search)
    return count["evaluate"]


@pytest.mark.parametrize("name", ["tabular", "streaming", "linear"])
@pytest.mark.parametrize("episodes", [0, 30, 150, 400])
def test_the_default_finds_the_very_lam_of_plain_bisection(name: str, episodes: int) -> None:
    """One λ at a time, each halving asked for when the last is answered: λ and bound are the same bit for bit."""
    planner = _trained(name, es.Bisection(), episodes).planner
    search, found = planner.search, planner.decide()
    top, bottom = planner.utility_bound(search.lam_max), planner.utility_bound(0.0)
    if top < search.threshold:
        assert found.source == decision.SAFE and found.utility_bound == top
    elif bottom >= search.threshold:
        assert found.source == decision.ZERO and found.utility_bound == bottom
    else:
        lower, upper = 0.0, search.lam_max
        for _ in range(search.num_halvings):
            middle = (lower + upper) / 2
            lower, upper = (lower, middle) if planner.utility_bound(middle) >= search.threshold else (middle, upper)
        assert found == (decision.SEARCH, upper, planner.utility_bound(upper))


def test_the_values_left_behind_are_those_of_the_lam_found() -> None:
    planner = _trained("tabular", es.Bisection()).planner
    found = planner.decide()
    table, values = planner.policy(found.lam).table(), planner.regression.start_values.copy()
    planner.utility_bound(found.lam)
    np.testing.assert_array_equal(planner.policy(found.lam).table(), table)
    np.testing.assert_array_equal(planner.regression.start_values, values)


def test_refused() -> None:
    task = es.make("tabular").task
    with pytest.raises(ValueError, match="one-hot features use Bisection"):
        es.OPSE(task, CONSTANTS, search=es.Sections())
    with pytest.raises(ValueError, match="factor must be > 1"):
        es.WarmStart(1.0)
    with pytest.raises(ValueError, match="points must be a whole number >= 2"):
        es.Sections(1)
