"""The only loop: plan, deploy, observe, learn; exact values whenever the policy changed."""

import time
from collections.abc import Callable

import numpy as np

from episafe.agents.base import Agent, Episode
from episafe.problems.cmdp import LinearCMDP
from episafe.runs.record import Record
from episafe.runs.settings import versions
from episafe.runs.simulate import cumulative, simulate

REPORT_EVERY = 0.2  # seconds between calls of `on_progress`


def run(
    cmdp: LinearCMDP,
    agent: Agent,
    num_episodes: int = 10_000,
    seed: int = 0,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Run `agent` on `cmdp`; the same seed gives the same record, bit for bit.

    Args:
        cmdp: the world, known to this loop and not to the agent.
        agent: plans before each episode and learns after it.
        num_episodes: K.
        seed: of the run; transitions and actions are drawn from two separate streams.
        on_progress: called now and then with the number of episodes done.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming", seed=3)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("streaming"))
        >>> record = es.run(cmdp, agent, num_episodes=100)
        >>> float(record.violation()[-1])
        0.0
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes must be at least 1, got {num_episodes}")
    start = time.perf_counter()
    transitions, choices = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    kernel = cumulative(cmdp.P)
    H, initial_state = cmdp.task.horizon, cmdp.task.initial_state
    values, bounds = np.empty((num_episodes, 2)), np.empty((num_episodes, 2))
    sources, plan_ids = np.empty(num_episodes, dtype="U6"), np.empty(num_episodes, dtype=np.int64)
    current, reported = None, start
    for k in range(num_episodes):
        plan = agent.plan()
        if plan is not current:
            current, policy = plan, cumulative(plan.policy.table())
            exact = cmdp.evaluate(plan.policy)
        values[k], bounds[k] = exact, (plan.lam, plan.utility_bound)
        sources[k], plan_ids[k] = plan.source, plan.id
        states, actions = simulate(policy, kernel, initial_state, choices.random(H), transitions.random(H))
        agent.learn(Episode(states, actions), plan_id=plan.id)
        if on_progress is not None and time.perf_counter() - reported > REPORT_EVERY:
            reported = time.perf_counter()
            on_progress(k + 1)
    seconds = time.perf_counter() - start
    settings = {**cmdp.origin, **agent.settings(), "num_episodes": num_episodes, "run_seed": seed}
    return Record(
        reward_values=values[:, 0].copy(),
        utility_values=values[:, 1].copy(),
        sources=sources,
        lams=bounds[:, 0].copy(),
        utility_bounds=bounds[:, 1].copy(),
        plan_ids=plan_ids,
        optimum=cmdp.optimal_value(),
        threshold=cmdp.task.threshold,
        settings={**settings, **versions(), "seconds": seconds},
    )
