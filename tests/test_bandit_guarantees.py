"""What is claimed of bandits, over fresh seeds: the event, zero violation, deployments; with controls that fail."""

import math

import numpy as np
import pytest

import episafe as es
from episafe.agents.bandits.oplbsp import deployment_bound
from episafe.kernels.bandit_regression import absorb, blank, estimates, radius_now
from episafe.learning.bandit_radius import radius

SEEDS = range(300, 320)
LENGTHS = {"finite": 20_000, "ball": 20_000, "ellipsoid": 20_000, "contexts": 5_000}


def violations(env, seeds, num_rounds, build):
    found = []
    for seed in seeds:
        bandit = es.bandits.make(env, seed)
        found.append(es.bandits.run(bandit, build(bandit.task, num_rounds), num_rounds, seed))
    return found


def theorem(kind):
    return lambda task, K: es.bandits.OPLBSP(task, K, radius=kind, replan=es.Doubling(0.3))


@pytest.mark.parametrize("env", LENGTHS)
def test_oplbsp_at_the_level_theorem_never_violates(env):
    """Zero on all of 20 problems: with a violation rate of 14 % this would pass 5 % of the time."""
    records = violations(env, SEEDS, LENGTHS[env], theorem("determinant"))
    assert max(record.violations().max() for record in records) == 0
    assert min(np.mean(record.sources == "search") for record in records) > 0.2
    assert {record.settings["level"] for record in records} == {"theorem"}


@pytest.mark.parametrize("env", LENGTHS)
def test_oful_violates_as_it_should(env):
    """The negative control on the same problems: if it does not fail, they tell nothing."""
    records = violations(env, SEEDS, 1_000, lambda task, K: es.bandits.OFUL(task, K, replan=es.Doubling(0.3)))
    assert min(int(record.violating().sum()) for record in records) > 0


def test_a_radius_far_too_small_is_caught():
    """The other control: the same algorithm with a hundredth of the noise's share of the radius does violate."""
    records = violations("finite", SEEDS, 3_000, lambda task, K: es.bandits.OPLBSP(task, K, radius=0.05))
    assert sum(record.violating().any() for record in records) > 5


def excess(kind, scale, num_runs, num_rounds=300, dim=3):
    """In how many runs ‖θ̂ − θ‖_Λ leaves the radius in some round, for reward or utility; actions chase the noise."""
    task = es.bandits.BanditTask(dim, es.bandits.Ball(), -1.0, np.zeros(dim), 0.5, 1.0, 1.0)
    found, _ = radius(kind, task, num_rounds, 0.2)
    rng, out = np.random.default_rng(7), 0
    for _ in range(num_runs):
        theta = rng.normal(size=(2, dim))
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
        model, broken = blank(dim), False
        for _ in range(num_rounds):
            error = estimates(model) - theta
            width = scale * radius_now(found, model.log_det[0], model.seen[0])
            broken |= bool(np.einsum("gi,ij,gj->g", error, model.gram, error).max() > width**2)
            guess = estimates(model)[0] + 0.1 * rng.normal(size=dim)  # adaptive, as a learner is
            action = (guess / np.linalg.norm(guess))[None]
            absorb(model, action, 0, (theta @ action[0] + rng.normal(size=2))[None], 0)
        out += broken
    return out


@pytest.mark.parametrize("kind", ["determinant", "anytime", "paper"])
def test_the_radius_holds_for_reward_and_utility_in_all_rounds(kind):
    """δ = 0.2: among 100 runs more than 32 failures have probability below 0.1 % if the bound holds."""
    assert excess(kind, 1.0, 100) <= 32
    assert excess(kind, 0.35, 20) > 10  # the control: a third of it fails


@pytest.mark.parametrize("seed", range(3))
def test_a_single_safe_action_is_deployed_at_most_as_often_as_its_norm_allows(seed):
    """n plays of a leave ‖a‖²_{Λ⁻¹} ≤ 1/n, whatever else was played: no logarithm, no probability."""
    bandit = es.bandits.make("ball", 330 + seed)
    K = 4_000
    record = es.bandits.run(bandit, es.bandits.OPLBSP(bandit.task, K), K, seed)
    C_u = 1 + 0.5 * math.sqrt(5 * math.log(4 * K / 0.05))
    used = record.safe_deployments()[-1]
    assert used <= 4 * C_u**2 / 0.3**2 + 1
    assert used > 500  # it is not idle either
    assert used <= deployment_bound(bandit.task, K, 0.05)
    assert (np.diff(record.sources == "safe") != 0).sum() <= 1  # a prefix: β only shrinks


def test_tighter_radii_beat_the_incumbent_sooner():
    gained = []
    for seed in SEEDS:
        bandit = es.bandits.make("finite", seed)
        ends = [
            es.bandits.run(bandit, theorem(kind)(bandit.task, 20_000), 20_000, seed).regret()[-1]
            for kind in ("paper", "determinant")
        ]
        gained.append(ends[0] - ends[1])
    assert np.mean(gained) > 2 * np.std(gained, ddof=1) / math.sqrt(len(gained))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["paper", "determinant"])
@pytest.mark.parametrize("env", LENGTHS)
def test_two_hundred_seeds_without_one_violating_round(env, kind):
    num_rounds = 20_000 if env == "contexts" else 100_000
    records = violations(env, range(1000, 1200), num_rounds, theorem(kind))
    assert max(record.violations().max() for record in records) == 0
    for record in records:
        assert record.safe_deployments()[-1] <= record.settings["deployment_bound"]
