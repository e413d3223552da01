"""The peers on fresh problems: those that promise safety do not violate at their multiplier, the others do.

    python benchmarks/peers.py tune             # 3 problems each, from seed 1000 on: regret and violation by multiplier
    python benchmarks/peers.py tune epsmix 10   # of one agent, on so many problems
    python benchmarks/peers.py fresh            # 5 problems each, from seed 30000 on, at the registry’s multipliers
    python benchmarks/peers.py fresh 20

Each prints a Markdown table. The multiplier of an agent that promises safety is that of the least regret among those
without violation on all tuning problems; of the others, that of the least regret and violation together. Both are sums
over the problems, each in units of the incumbent's regret there. Nothing was chosen on seeds from 30000 on.
"""

import sys

import numpy as np

import episafe as es
from episafe.experiments.agent_choice import build_agent
from episafe.registry import AGENTS

ENVS = ("tabular", "streaming")
EPISODES, TUNING, FRESH = 2000, 1000, 30_000
MULTIPLIERS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5)
PEERS = [name for name, entry in AGENTS.items() if "bonus" in entry.mdp.options]
STEPPED = ("optdual", "optprimaldual", "optpess-primaldual", "ghosh2022", "triple-q")  # once an episode


def tune(name="", count=3):
    """Regret and violation of the peers, or of one of them, by multiplier; the best is marked."""
    print("| agent | bonus | regret | violation | problems that violate | |\n|---|---|---|---|---|---|")
    for agent in [name] if name else PEERS:
        rows = {bonus: of_all(agent, range(TUNING, TUNING + count), {"bonus": bonus}) for bonus in MULTIPLIERS}
        zero = AGENTS[agent].proved == "zero"
        allowed = {bonus: row for bonus, row in rows.items() if not zero or row[2] == 0}
        best = min(allowed, key=lambda bonus: allowed[bonus][0] + allowed[bonus][1], default=None)
        for bonus, (regret, violation, violating) in rows.items():
            mark = "best" if bonus == best else ""
            print(f"| {agent} | {bonus:g} | {regret:.2f} | {violation:.2f} | {violating} | {mark} |", flush=True)


def fresh(count=5):
    """Every peer at its multiplier, and OPSE, on problems that nothing was chosen on."""
    print(f"{EPISODES} episodes; regret and violation in units of the incumbent's regret.\n")
    print("| agent | proved | bonus | regret | violation | problems that violate |\n|---|---|---|---|---|---|")
    for agent in ("opse", *PEERS):
        regret, violation, violating = of_all(agent, range(FRESH, FRESH + count))
        entry = AGENTS[agent]
        bonus = entry.mdp.arguments(None).get("bonus", "–")
        proved = entry.proved or "nothing"
        print(
            f"| {agent} | {proved} | {bonus} | {regret:.2f} | {violation:.2f} | {violating} of {2 * count} |",
            flush=True,
        )


def of_all(agent, seeds, options=None):
    """Mean regret and violation over all problems, in units of the incumbent's regret, and how many violate."""
    rows = np.array([one_run(agent, env, seed, options or {}) for env in ENVS for seed in seeds])
    return rows[:, 0].mean(), rows[:, 1].mean(), int((rows[:, 1] > 1e-9).sum())


def one_run(agent, env, seed, options):
    cmdp = es.make(env, seed)
    replan = es.Every() if agent in STEPPED else es.Doubling(0.3)
    built = build_agent(agent, cmdp, replan=replan, num_episodes=EPISODES, options=options)
    record = es.run(cmdp, built, EPISODES, seed)
    unit = EPISODES * (cmdp.optimal_value() - cmdp.evaluate(cmdp.task.safe_policy)[0])
    return record.regret()[-1] / unit, record.violation()[-1] / unit


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["fresh"]
    given = [int(argument) if argument.isdigit() else argument for argument in arguments]
    {"tune": tune, "fresh": fresh}[command](*given)
