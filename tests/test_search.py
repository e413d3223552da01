"""Other ways to look for λ: what they deploy is certified, and they are compared with bisection."""

from collections import Counter

import numpy as np
import pytest

import episafe as es
from episafe.learning import kernels

CONSTANTS = es.Constants(1, 1, 1, 1, kappa=0.05, lam_max=100, num_halvings=25)


def _trained(name: str, search: object, episodes: int = 400) -> es.OPSE:
    cmdp = es.make(name, seed=2)
    agent = es.OPSE(cmdp.task, CONSTANTS, es.Doubling(0.3), search=search)  # type: ignore[arg-type]
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
        agent = _trained("tabular", search)
        agent.planner.decide()
        counts[search] = _evaluations(agent)
    assert counts[es.Bisection()] <= 2 + CONSTANTS.num_halvings + 1
    assert counts[es.WarmStart(1.1)] <= 0.65 * counts[es.Bisection()]


def _evaluations(agent: es.OPSE) -> int:
    """How often one decision evaluates a λ, counted in the uncompiled twin of `decide`."""
    count: Counter[str] = Counter()

    def counting(*arguments: object) -> float:
        count["evaluate"] += 1
        return float(kernels.evaluate_once(*arguments))

    planner, known = agent.planner, agent.planner.regression
    kernels.refresh_once(
        known.model, known.support.size, known.work, planner.scales
    )  # compiled before anything is patched
    planner.utility_bound(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "evaluate", counting)
        patch.setattr(kernels, "refresh", kernels.refresh_once)
        kernels.decide.py_func(known.model, known.support, known.work, planner.scales, planner.search)
    return count["evaluate"]


def test_refused() -> None:
    task = es.make("tabular").task
    with pytest.raises(ValueError, match="one-hot features use Bisection"):
        es.OPSE(task, CONSTANTS, search=es.Sections())
    with pytest.raises(ValueError, match="factor must be > 1"):
        es.WarmStart(1.0)
    with pytest.raises(ValueError, match="points must be a whole number >= 2"):
        es.Sections(1)
