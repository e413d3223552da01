# %% [markdown]
# # Agents compared
#
# Five agents, one family of problems, exact regret and exact violation. Then a new agent of your own, in one class.

# %%
import numpy as np

import episafe as es

problems = [es.make("streaming", seed=seed) for seed in range(20, 26)]  # the paper's streaming problem, six draws
one = problems[0]
print(
    f"H = {one.task.horizon}, S = {one.task.num_states}, A = {one.task.num_actions}; required {one.task.threshold:.3f}"
)
print(f"optimum {one.optimal_value():.3f}, incumbent {one.evaluate(one.task.safe_policy)[0]:.3f}")

# %% [markdown]
# ## Agents
#
# An agent is built from the *task*: all that a learner is told. The transition kernel is not in it.

# %%
agents = {
    "OPSE": lambda task: es.OPSE(task, es.Constants.paper("streaming")),
    "OPSE, Observation": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation()),
    "OPSE, Box": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Box()),
    "Ghosh et al. 2024": lambda task: es.Ghosh2024(task, es.Constants.paper("streaming", agent="ghosh")),
    "incumbent": lambda task: es.Fixed(task, "incumbent"),
}
records = {
    name: [es.run(problem, make(problem.task), num_episodes=2_000, seed=k) for k, problem in enumerate(problems)]
    for name, make in agents.items()
}
print(f"{'':20}{'regret':>12}{'violating runs':>18}{'incumbent acted':>18}")
for name, runs in records.items():
    regret = [run.regret()[-1] for run in runs]
    mean, half_width = (
        np.mean(regret),
        2.57 * np.std(regret, ddof=1) / len(regret) ** 0.5,
    )  # t with 5 degrees of freedom
    violating = sum(run.violating().any() for run in runs)
    acted = np.mean([run.incumbent_acted().mean() for run in runs])
    print(f"{name:20}{mean:6.0f} ± {half_width:3.0f}{violating:>13} of {len(runs)}{acted:>17.0%}")

# %% [markdown]
# Low regret bought with violations is no success: Ghosh et al. keep the constraint on average over episodes, and not in each.
# The level says what a zero is worth: *theorem* is proved, *heuristic* was observed.

# %%
for name, runs in records.items():
    print(f"{name:20}{runs[0].settings['level']}")

# %% [markdown]
# ## As a picture

# %%
from matplotlib import pyplot

colours = ("#0072B2", "#000000", "#E69F00", "#D55E00", "#6B6B6B")  # those that reports have for these agents
figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
for (name, runs), colour in zip(records.items(), colours, strict=True):
    axes.plot(np.mean([run.regret() for run in runs], axis=0), label=name, color=colour)
axes.set(xlabel="episode", ylabel="regret, total (reward)")
axes.legend(frameon=False)
pyplot.show()

# %% [markdown]
# ## An agent of your own
#
# Anything with `plan` and `learn` is an agent. The shortest one deploys one policy, here halfway between the incumbent and
# chance, and learns nothing. `episafe.testing.check_agent` has the battery that every agent of the package passes.

# %%
from episafe.testing import check_agent


def halfway(task):
    """The incumbent and the uniform policy, half and half at every step: certified by nobody."""
    uniform = np.full((task.horizon, task.num_states, task.num_actions), 1 / task.num_actions)
    return es.Fixed(task, (task.safe_policy.table() + uniform) / 2)


runs = [es.run(problem, halfway(problem.task), num_episodes=2_000, seed=k) for k, problem in enumerate(problems)]
violating = sum(run.violating().any() for run in runs)
print(f"halfway: regret {np.mean([run.regret()[-1] for run in runs]):.0f}, violating runs {violating} of {len(runs)}")
print(f"passed: {len(check_agent(lambda task: es.Fixed(task, 'incumbent')))} checks")

# %% [markdown]
# An agent that plans: [CONTRIBUTING.md](../../CONTRIBUTING.md) has one of thirty lines to copy. Many agents, many problems, many
# seeds: `episafe sweep` ([sweeps](../sweeps.md)), and `episafe paper` reproduces the paper's figures.
