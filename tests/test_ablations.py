"""OPSE without one of its parts: its plans against a slow version, and what is recorded of it."""

import numpy as np
import pytest

import episafe as es
import peer_oracles as slow
from conftest import constants
from episafe.reports.record_groups import grouped
from test_peers import counted, drawn, learned

PARTS = ("compensation", "entropy", "randomness", "incumbent")
SAID = constants(C_u=0.1, C_dagger=0.1, B_dagger=0.3, num_halvings=12, kappa=1.0)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(200), marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", PARTS)
def test_plans_equal_those_of_a_slow_version_without_the_part(part, seeds):
    sources, others = set(), 0
    for seed in seeds:
        (task, episodes, _), counts = drawn(seed), counted(seed)
        plan = learned(es.AblatedOPSE(task, SAID, without=part), episodes).plan()
        whole = learned(es.OPSE(task, SAID), episodes).plan()
        found = slow.ablated(task, counts, SAID, part)
        sources.add(plan.source)
        assert (plan.source == "safe") == (found is None)
        if found is not None:
            np.testing.assert_allclose(plan.policy.table(), found[0], atol=1e-8)
            assert (plan.lam, plan.utility_bound) == pytest.approx(found[1:], abs=1e-8)
        others += not np.allclose(plan.policy.table(), whole.policy.table(), atol=1e-6)
    assert others > 10  # what is left out is missed
    assert sources >= ({"search"} if part == "incumbent" else {"safe", "search"})


def test_ablations_are_recorded_and_never_averaged_with_one_another():
    cmdp = es.make("streaming", seed=0)
    said = es.Constants.paper("streaming")
    agents = [es.OPSE(cmdp.task, said), *(es.AblatedOPSE(cmdp.task, said, without=part) for part in PARTS)]
    records = [es.run(cmdp, agent, 20) for agent in agents]
    assert len(grouped(records)) == 5
    assert [record.settings.get("without") for record in records] == [None, *PARTS]


def test_runs_with_another_multiplier_are_never_averaged():
    cmdp = es.make("streaming", seed=0)
    agents = [es.OptPessLP(cmdp.task, 100, bonus=bonus) for bonus in (0.1, 0.1, 0.01)]
    assert sorted(map(len, grouped(es.run(cmdp, agent, 20) for agent in agents).values())) == [1, 2]


def test_without_what_is_no_part_is_refused():
    with pytest.raises(ValueError, match="without must be one of compensation, entropy, randomness, incumbent"):
        es.AblatedOPSE(es.make("streaming").task, SAID, without="care")
