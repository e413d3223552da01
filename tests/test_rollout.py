"""Rollout: candidates of which only totals are seen."""

import json
from pathlib import Path

import numpy as np
import pytest

import episafe as es

GOLDEN = Path(__file__).parent / "golden"
INDEX = json.loads((GOLDEN / "index.json").read_text())
CASES = [case for case in INDEX["cases"] if case["problem"]["kind"] == "totals"]


def parts_of(plan):
    """Return names and weights of the policies that a plan may let act."""
    if isinstance(plan.policy, es.Mixture):
        return plan.policy.names, plan.policy.weights
    return ("incumbent" if plan.source == "safe" else plan.policy.name,), np.ones(1)


def replay(case, seed):
    """Play a golden case: a mean for each policy, and noise that is uniform in [-spread, spread]."""
    told, delta = case["problem"], case["agent"]["options"]["delta"]
    names, rows, rng = list(told["utility"]), [], np.random.default_rng(seed)
    agent = es.Rollout(told["threshold"], told["slack"], {name: name for name in names[1:]}, "incumbent", delta)
    for _ in range(case["num_episodes"]):
        coin, noise = rng.random(2)
        plan = agent.plan()
        parts, shares = parts_of(plan)
        component = int(np.searchsorted(np.cumsum(shares)[:-1], coin, side="right"))
        moved = told["spread"] * (2 * noise - 1)
        bounds, said = agent.bounds(), dict(zip(parts, shares, strict=True))
        rows.append({
            "sources": INDEX["sources"].index(plan.source), "bounds": plan.bounds,
            "acting": names.index(parts[component]), "weights": [said.get(name, 0.0) for name in names],
            "all_bounds": [bounds.get(name, np.full(len(plan.bounds), np.nan)) for name in names],
        })  # fmt: skip
        utility, reward = np.array(told["utility"][parts[component]]) + moved, told["reward"][parts[component]] + moved
        agent.learn(es.Episode.of_totals(utility, float(reward), component), plan.id)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_record_is_that_of_the_first_edition(case):
    with np.load(GOLDEN / case["file"]) as golden:
        for i, seed in enumerate(case["seeds"]):
            found = replay(case, seed)
            for name in golden.files:
                old = golden[name][i]
                np.testing.assert_allclose(found[name].reshape(old.shape), old, 0, INDEX["tolerance"], err_msg=name)


def regenerate(case):
    """Write the golden record of a case again, in its shapes."""
    with np.load(GOLDEN / case["file"]) as golden:
        old = dict(golden)
    made = [replay(case, seed) for seed in case["seeds"]]
    np.savez_compressed(
        GOLDEN / case["file"],
        **{
            name: np.array([one[name] for one in made]).reshape(old[name].shape).astype(old[name].dtype) for name in old
        },
    )


def rollout(**changed):
    told = {"threshold": 0.5, "slack": 0.2, "candidates": {"v2": "https://v2"}, "incumbent": "https://v1"} | changed
    return es.Rollout(**told)


def play(agent, means, num_episodes, rng, spread=0.25, lost=lambda total: False):
    """Deploy and report; yield each plan. Totals are uniform around the mean of the acting policy."""
    for _ in range(num_episodes):
        plan = agent.plan()
        names, weights = parts_of(plan)
        component = int(rng.choice(len(names), p=weights))
        total = means[names[component]] + spread * (2 * rng.random() - 1)
        if not lost(total):
            agent.learn(es.Episode.of_totals(total, component=component), plan.id)
        yield plan


def test_every_deployed_mixture_reaches_the_threshold_and_no_bound_is_wrong():
    rng, means = np.random.default_rng(1), {"incumbent": 0.7, "bad": 0.3, "good": 0.65, "close": 0.51}
    alone = 0
    for _ in range(20):
        agent = rollout(candidates={name: name for name in list(means)[1:]})
        for plan in play(agent, means, 250, rng):
            names, weights = parts_of(plan)
            assert sum(weight * means[name] for name, weight in zip(names, weights, strict=True)) >= 0.5 - 1e-12
            assert plan.source == "safe" or (plan.bounds >= 0.5).all()
            assert all(bound <= means[name] + 1e-12 for name, bound in agent.bounds().items())
        alone += parts_of(plan)[0] == ("good",)
    assert alone >= 18


def test_lost_reports_of_bad_episodes_prove_nothing():
    rng, means = np.random.default_rng(2), {"incumbent": 0.9, "v2": 0.45}
    for _ in range(10):
        agent = rollout(slack=0.4)
        for _ in play(agent, means, 200, rng, 0.4, lost=lambda total: total < 0.45):
            assert agent.bounds()["v2"] <= 0.45


def test_a_report_counts_once_and_for_the_policy_that_acted():
    agent = rollout()
    plan = agent.plan()
    with pytest.raises(es.InvalidEpisode, match="component is None: give the position in"):
        agent.learn(es.Episode.of_totals(1.0), plan.id)
    agent.learn(es.Episode.of_totals(1.0, component=0), plan.id)
    with pytest.raises(es.InvalidEpisode, match="unknown or was reported before"):
        agent.learn(es.Episode.of_totals(1.0, component=0), plan.id)
    before = agent.bounds()["v2"]
    for _ in range(50):
        plan = agent.plan()
        agent.learn(es.Episode.of_totals(1.0, component=plan.policy.names.index("incumbent")), plan.id)
    assert agent.bounds()["v2"] == before


def test_a_policy_may_be_known_by_its_name_alone():
    session = es.open(None, rollout(candidates={"v2": None}, incumbent=None))
    assert {session.deploy().name for _ in range(100)} == {"v2", "incumbent"}


def test_a_candidate_with_a_least_total_of_its_own_is_tried_more_often():
    plain, sure = rollout(), rollout(candidates={})
    sure.add_candidate("v2", "https://v2", least_total=0.4)
    assert plain.plan().policy.weights[0] == pytest.approx(0.2 / 0.7)
    assert sure.plan().policy.weights[0] == pytest.approx(0.2 / 0.3)
    # the incumbent's total may be lower, a total of the candidate may not
    plan = sure.plan()
    sure.learn(es.Episode.of_totals(0.1, component=plan.policy.names.index("incumbent")), plan.id)
    assert not sure.certifier.invalid_reason
    plan = sure.plan()
    sure.learn(es.Episode.of_totals(0.1, component=plan.policy.names.index("v2")), plan.id)
    assert "below the least total" in sure.certifier.invalid_reason
    assert sure.plan().source == "safe"


def test_a_tiny_slack_and_a_high_least_total_fit_the_grid():
    agent = rollout(threshold=1000.0, slack=0.1, candidates={})
    agent.add_candidate("v2", "https://v2", least_total=950.1)
    assert agent.plan().policy.weights[0] == pytest.approx(0.1 / 50)


def test_without_a_slack_the_incumbent_acts_alone_until_it_is_proved():
    agent, rng, sources = rollout(slack=None), np.random.default_rng(3), []
    for plan in play(agent, {"incumbent": 0.8, "v2": 0.7}, 150, rng):
        sources.append(plan.source)
    assert sources[0] == "safe"
    assert "search" in sources
    assert 0.5 < agent.bounds()["incumbent"][0] <= 0.8
    assert agent.settings()["statement"].endswith("at least the threshold")


def test_a_promoted_policy_pays_for_trials_and_a_change_keeps_bounds():
    agent, rng, means = rollout(), np.random.default_rng(4), {"incumbent": 0.7, "v2": 0.8, "v3": 0.75}
    with pytest.raises(ValueError, match="below the limits"):
        list(play(agent, means, 1, rng))
        agent.promote("v2")
    list(play(agent, means, 300, rng))
    agent.promote("v2")
    agent.add_candidate("v3", "https://v3")
    assert set(parts_of(agent.plan())[0]) == {"v2", "v3"}
    before = agent.bounds()["v2"]
    agent.change(threshold=0.6)
    assert agent.bounds()["v2"] == before
    assert agent.bounds()["incumbent"] == pytest.approx(0.7)
    with pytest.raises(es.Infeasible, match=r"incumbent reaches 0.7"):
        agent.change(threshold=0.75)
    agent.withdraw("v3")
    assert "v3" not in agent.bounds()


def test_a_session_deploys_opaque_policies_and_is_audited_with_and_without_the_agent(tmp_path):
    with es.open(tmp_path, rollout()) as session:
        for k in range(60):
            d = session.deploy()
            assert d.policy.given == {"incumbent": "https://v1", "v2": "https://v2"}[d.name]
            if k % 7:
                session.report(d.id, es.Episode.of_totals(0.9, 0.5))
        bounds = session.bounds()
    with es.open(tmp_path, rollout()) as session:
        assert all((session.bounds()[name] == bounds[name]).all() for name in bounds)
        with pytest.raises(TypeError, match=r"opaque: run d.policy.given"):
            session.deploy().policy.probabilities(0, 0)
    assert es.audit(tmp_path, rollout()).passed
    assert es.audit(tmp_path).passed
    with pytest.raises(es.InvalidProblem, match=r"began with incumbent = .*begin a new session"):
        es.open(tmp_path, rollout(incumbent="https://v0"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threshold": 0.0}, "is not above least_total 0"),
        ({"slack": -1}, "slack must be a finite number > 0"),
        ({"candidates": ["v2"]}, "policies by name"),
        ({"candidates": {"incumbent": 1}}, "taken or reserved"),
        ({"threshold": [0.5, 0.3]}, "slack must be a list of 2"),
        ({"delta": 2}, "delta must be a number in"),
    ],
)
def test_errors_name_the_remedy(changed, message):
    with pytest.raises(ValueError, match=message):
        rollout(**changed)


if __name__ == "__main__":  # when bets change, see test_golden.py
    for one in CASES:
        regenerate(one)


def test_a_floor_refuses_candidates_without_a_least_total_above_it():
    agent = es.Rollout(0.9, 0.05, candidates={}, incumbent="v1", floor=0.5)
    with pytest.raises(es.InvalidProblem, match=r"'v2' may total 0, below the floor 0\.5 of utility"):
        agent.add_candidate("v2", "v2")
    agent.add_candidate("v2", "v2", least_total=0.6)
    assert agent.plan().policy.names == ("v2", "incumbent") and agent.settings()["floor utility"] == 0.5
