"""Our environments as Gymnasium environments: they pass its checker, and follow the kernel."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import episafe as es
import episafe.envs.gymnasium  # registers them

IDS = ["episafe/Tabular-v0", "episafe/Streaming-v0", "episafe/Linear-v0"]


@pytest.mark.parametrize("name", [*IDS, "episafe/Inventory-v0", "episafe/Battery-v0", "episafe/Cloud-v0"])
def test_gymnasiums_checker_passes(name):
    check_env(gymnasium.make(name).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", IDS)
def test_options_and_seed_reach_the_problem(name):
    env = gymnasium.make(name, problem_seed=3, horizon=6).unwrapped
    expected = es.make(name[8:-3].lower(), 3, horizon=6)
    np.testing.assert_array_equal(env.cmdp.P, expected.P)


def test_average_totals_agree_with_the_exact_values():
    """2000 episodes of the uniform policy, seeded, through from_gymnasium: within three standard errors."""
    env = gymnasium.make("episafe/Streaming-v0", problem_seed=1)
    cmdp = env.unwrapped.cmdp
    task = cmdp.task
    live = es.from_gymnasium(
        env,
        features=es.features.OneHot(),
        horizon=task.horizon,
        threshold=task.threshold,
        slack=task.slack,
        safe_policy=task.safe_policy,
    )
    record = es.run(live, es.Fixed(live.task, "uniform"), num_episodes=2000, seed=0)
    exact = cmdp.evaluate(np.full(task.reward.shape, 0.5))
    for value, (mean, half_width) in zip(exact, record.observed(last=2000), strict=True):
        assert abs(mean - value) < 3 / 1.96 * half_width


def test_a_step_too_many_is_refused():
    env = gymnasium.make("episafe/Streaming-v0").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)
