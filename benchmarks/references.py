"""Reference records: small seeded runs of everything there is, to show that a change keeps results bit for bit.

    python benchmarks/references.py freeze FILE.json [PART]     # make every record, write the SHA-256 of every column
    python benchmarks/references.py compare FILE.json [PART]    # make them again; name every difference, exit 1 if any

PART: only the cases whose name contains it. A case makes one record, or several that must be alike: of the plain and
the compiled loop, of a run in one go and one taken up. What only the newer version has is told, and no difference.
"""

import hashlib
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import episafe as es

NEVER = 1e-300  # a probability of alarms: such monitors watch, so that the loop is the plain one, and say nothing
PLAN, ALARM = ("source", "lam", "utility_bound", "level", "reason", "id"), ("what", "says", "after", "halts")
TASK = ("reward", "utility", "phi", "threshold", "slack", "initial_state")
SLACK, WORTH = ("lower", "mean", "num_episodes"), ("reward", "reward_half_width", "utility", "utility_half_width")


def named(prefix, thing, names):
    return {f"{prefix}{name}": getattr(thing, name) for name in names}


def hashed(value):
    """An array by its type, shape and little-endian bytes, text as wide as it needs; a plain value as it is written."""
    if not isinstance(value, np.ndarray):
        return repr(value.item() if isinstance(value, np.generic) else value)
    value = np.array(value.tolist()) if value.dtype.kind == "U" else value
    array = np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")
    return f"{array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def described(record):
    """The columns of a record, its optimum and threshold, and its settings but for seconds and versions."""
    found = named("", record, (*record.columns(), "optimum", "threshold"))
    said = {f"settings.{name}": value for name, value in record.settings.items() if name != "seconds"}
    return found | {name: value for name, value in said.items() if not name.endswith("_version")}


def ran(problem, agent, num_episodes, states, **options):
    """The record of a run and the plan after it: the policy, or each that it mixes, at these states or in a table."""
    run = es.bandits.run if isinstance(problem, es.bandits.LinearBandit) else es.run
    found, plan = described(run(problem, agent, num_episodes, **options)), agent.plan()
    found |= named("plan.", plan, PLAN)
    if run is es.bandits.run:
        return found | named("plan.", plan, ("atoms", "probabilities"))
    found["plan.weights"] = np.array(getattr(plan.policy, "weights", [1.0]))
    for i, policy in enumerate(getattr(plan.policy, "components", [plan.policy])):
        rows = [policy.probabilities(h, state) for h in range(agent.task.horizon) for state in states]
        found[f"plan.policy {i}"] = np.array(rows) if states else policy.table()
    return found


def in_both_loops(make, build, num_episodes, states=(), delta=NEVER):
    """The compiled loop, where there is one, and the plain one; or, with a large delta, what the monitors see."""
    problem = make()
    agent, kind = build(problem), es.bandits if isinstance(problem, es.bandits.LinearBandit) else es
    monitors = kind.Monitors(agent.task, delta)
    watched = ran(problem, agent, num_episodes, states, seed=5, monitors=monitors)
    if delta > NEVER:
        return {"watched": watched | {"alarms": [named("", alarm, ALARM) for alarm in monitors.alarms]}}
    return {"unwatched": ran(problem, build(problem), num_episodes, states, seed=5), "watched": watched}


def taken_up(make, build, num_episodes, states=()):
    """In one go, and another run of the same agent; and with a folder to a third of the way, then to the end."""
    problem, part, rest = make(), make(), make()
    agent, bandit = build(problem), isinstance(problem, es.bandits.LinearBandit)
    found = {"in one go": ran(problem, agent, num_episodes, states)}
    second = ran(problem, agent, num_episodes, states, **({"first_round": num_episodes} if bandit else {}))
    found["in one go"] |= {f"{name}, second run": value for name, value in second.items()}
    with tempfile.TemporaryDirectory() as folder:
        ran(part, build(part), num_episodes // 3, states, folder=folder)
        if bandit:
            found["taken up"] = ran(rest, build(rest), num_episodes, states, folder=folder)
        else:  # the folder of a listed problem tells all
            told = {} if isinstance(problem, es.LinearCMDP) else {"cmdp": rest, "agent": build(rest)}
            found["taken up"] = described(es.resume(folder, num_episodes, **told))
        return found | {"read back": described(es.Record.load(folder))}


def itself(make):
    """A problem: of a listed one arrays and exact answers, of another its slack and what policies earn, as measured."""
    problem = make()
    safe = problem.task.safe_policy
    if isinstance(problem, es.LinearCMDP):
        exact = {"P": problem.P, "best": problem.optimal_policy().table(), "optimum": problem.optimal_value()}
        return {"problem": named("", problem.task, TASK) | exact | {"incumbent": safe.table()}}
    found = named("slack ", es.measure_slack(problem, delta=0.2), SLACK)
    if isinstance(problem, es.GymCMDP):
        mixed = es.MixturePolicy([safe, es.Fixed(problem.task, "uniform").plan().policy], [0.7, 0.3])
        found |= named("incumbent ", es.estimate(problem, safe, 50, seed=3), WORTH)
        found |= named("mixture ", es.estimate(problem, mixed, 50, seed=3), WORTH)
    return {"problem": found}


def alike(name, share):
    """A listed problem whose steps are alike, and whose learner is told so."""
    drawn = es.make(name, 1)
    task, P = drawn.task, np.repeat(drawn.P[:1], drawn.task.horizon, axis=0)
    known = task.reward, task.utility, task.phi, task.initial_state, share * task.threshold
    return es.LinearCMDP(P, *known, time_homogeneous=True)


def by_functions(shared):
    """States are tuples of a number and text."""
    corners = [(0.5, "a"), (1.5, "b"), (-0.25, "a"), (0.1, "b")]
    return es.SampledCMDP(
        features=lambda s: np.kron(np.eye(2), np.array([abs(s[0]), 1.0, float(s[1] == "a")]) / 3),
        reward=lambda h, s: np.array([0.2, min(abs(s[0]), 1.0)]), utility=lambda h, s: np.array([0.9, 0.4]),
        sample=lambda h, s, a, rng: corners[rng.integers(4)], horizon=3, num_actions=2, initial_state=(0.0, "a"),
        threshold=1.5, safe_policy=lambda h, s: np.array([1.0, 0.0]), slack=1.0, time_homogeneous=shared,
    )  # fmt: skip


class Costly(gym.Wrapper):
    """A cost for a fall or an illegal action, which is then not in the reward."""

    def step(self, action):
        state, raw, terminated, truncated, info = self.env.step(action)
        cost = raw in (-10, -100) or (terminated and raw == 0)
        return state, max(raw, -1.0), terminated, truncated, {**info, "cost": float(cost)}


def live(env, usual, vector=None, **options):
    """A Gymnasium environment, or several by name side by side; the incumbent mostly takes the usual action."""
    if isinstance(env, str):
        make = partial(lambda name: Costly(gym.make(name, max_episode_steps=8)), env)
        env = make() if vector is None else SyncVectorEnv([make] * 3, autoreset_mode=vector)
        options = {"cost_limit": 2.0, **options}
    A = int(getattr(env, "single_action_space", env.action_space).n)
    p = 0.9 * np.eye(A)[usual] + 0.1 / A
    given = {"features": es.features.OneHot(), "horizon": 8, "safe_policy": lambda h, s: p, "slack": 0.5}
    return es.from_gymnasium(env, **given | options)


def ours(name, usual=None, **options):
    """A listed problem by its id, its reward learned; or a larger domain by its rules, played and never listed."""
    if usual is None:
        env = gym.make(f"episafe.envs.gymnasium:episafe/{name}-v0", problem_seed=1)
        task = env.unwrapped.cmdp.task
        known = {"utility": lambda h, s: task.utility[h, s], "safe_policy": task.safe_policy, "slack": task.slack}
        return live(env, 0, horizon=task.horizon, threshold=task.threshold, **known)
    rules = resolve_name(f"episafe.envs.{name}:{name.title()}")(**options)  # where the documentation has them
    env, H = resolve_name("episafe.envs.gymnasium:RulesEnv")(rules), rules.horizon
    return live(env, usual, horizon=H, threshold=0.8 * H, time_homogeneous=True)


LISTED = {
    **{f"{n} {v}": partial(es.make, n, 1, v) for n in ("tabular", "streaming", "linear") for v in ("released", "text")},
    **{name: partial(es.make, name, 1) for name in ("inventory", "battery", "cloud")},
    **{f"{name} alike": partial(alike, name, share) for name, share in (("streaming", 1.0), ("linear", 0.8))},
}
LAKE, POLYNOMIAL = partial(live, "FrozenLake-v1", 3), es.features.Polynomial([0, 0], [3, 3], 1)
OTHERS = {  # and states to look at
    **{f"functions{w}": (partial(by_functions, w != ""), [(0.0, "a"), (99.0, "b")]) for w in ("", " alike")},
    **{f"FrozenLake{w}": (partial(LAKE, time_homogeneous=w != ""), [0, 1, 4]) for w in ("", " alike")},
    "FrozenLake features": (partial(LAKE, features=lambda s: POLYNOMIAL(divmod(s, 4))), [0, 1, 4]),
    "FrozenLake slack unknown": (partial(LAKE, slack=None), [0, 1, 4]),
    **{f"FrozenLake vector {mode.name}": (partial(LAKE, vector=mode), [0, 1, 4]) for mode in AutoresetMode},
    "CliffWalking": (partial(live, "CliffWalking-v1", 0, reward_range=(-1, 0), time_homogeneous=True), [36, 24]),
    "Taxi": (partial(live, "Taxi-v4", 1, reward_range=(-1, 20), random_start=True), [0, 123]),
    **{f"{name} by its id": (partial(ours, name), [0, 1]) for name in ("Tabular", "Streaming", "Linear")},
    "inventory by rules": (partial(ours, "inventory", -1, lead_time=2), [np.array([3, 2, 2])]),
    "battery by rules": (partial(ours, "battery", -1, capacity=20, prices=9), [np.array([9, 2, 1])]),
    "cloud by rules": (partial(ours, "cloud", 0, longest=200, loads=9), [np.array([5, 1])]),
}


def of(kind, *given, **options):
    """Builds such agents from a problem; what is given besides its task may be a function of it."""
    return lambda problem: kind(problem.task, *(g(problem) if callable(g) else g for g in given), **options)


REPLAN, RADII = {"every": es.Every(), "doubling": es.Doubling(0.3)}.items(), ("paper", "determinant", "anytime", 0.3)
LEARNERS = (es.bandits.OPLBSP, es.bandits.OFUL, es.bandits.ROFUL, es.bandits.SafeLUCB)
BOLD = es.Constants(0.3, 0.05, 0.1, 0.2, kappa=0.1, lam_max=300.0, num_halvings=25, ridge=0.1, C_theta=0.05)
AGENTS = {
    **{f"{kind.name} {n}": of(kind, BOLD, rule) for kind in (es.OPSE, es.Ghosh2024) for n, rule in REPLAN},
    **{f"{kind.name} warm start": of(kind, BOLD, search=es.WarmStart()) for kind in (es.OPSE, es.Ghosh2024)},
    "opse incumbent first": of(es.OPSE, BOLD, es.Doubling(0.3), num_safe_episodes=20),
    "opse sections": of(es.OPSE, BOLD, search=es.Sections(4)),  # of features
    "opse tuned": of(es.OPSE, lambda p: es.Constants.tuned(p.task, slack_guess=None if p.task.slack else 0.3)),
    "opse observation": of(es.OPSE, es.Constants.proposing(), certifier=es.certify.Observation(0.1)),
    **{name: of(es.Fixed, name) for name in ("uniform", "incumbent")},
}
HOPEFUL = of(es.Ghosh2024, BOLD.replace(C_u=2.0), es.Doubling(0.3))  # it breaks its promises, and monitors see that
OF_LISTED = {
    "opse tuned every": of(es.OPSE, lambda p: es.Constants.tuned(p.task), es.Every()),
    "opse fresh data": of(es.OPSE, es.Constants.proposing(), certifier=es.certify.FreshData(0.1)),
    **{f"dope {n}": of(es.DOPE, BOLD, rule) for n, rule in REPLAN},
    "dope narrow": of(es.DOPE.authors, 1_000, bonus=1e-5, replan=es.Doubling(0.3)),
    "table": of(es.Fixed, lambda p: p.optimal_policy().table()),
}
OF_PAPER = {
    **{
        f"{k.name} paper {n}": of(k, lambda p, k=k: es.Constants.paper(p.origin["env"], k.name), rule)
        for k in (es.OPSE, es.Ghosh2024, es.DOPE)
        for n, rule in REPLAN
    },
    "opse theory": of(es.OPSE, lambda p: es.Constants.theory(p.task, 2_000)),
    "opse theory anytime": of(es.OPSE, lambda p: es.Constants.theory(p.task, None), es.Doubling(0.3)),
}
OF_BANDITS = {
    "incumbent": of(es.bandits.Incumbent),
    **{f"{k.name} {C} {n}": of(k, 400, radius=C, replan=r) for k in LEARNERS for C in RADII for n, r in REPLAN},
    "oplbsp estimated": of(es.bandits.OPLBSP, radius=0.2, slack="estimated", optimism=2.0),
    **{
        f"oplb {n}": lambda p, r=r: es.bandits.OPLB(p.task, 400, known_utility=p.evaluate(p.safe_policy())[1], replan=r)
        for n, r in REPLAN
    },
}


def cases():
    """Every case by its name: a function that makes its records by name, alike but for their settings."""
    found = {}
    for name, (make, states) in ({n: (make, ()) for n, make in LISTED.items()} | OTHERS).items():
        paper, rules = name.endswith(("released", "text")), name.endswith("rules")
        found[f"{name}: itself"] = partial(itself, make)
        for agent, build in (AGENTS | ({} if states else OF_LISTED) | (OF_PAPER if paper else {})).items():
            if agent == "opse sections" and not name.startswith(("linear", "functions", "FrozenLake features")):
                continue
            if agent == "opse observation" and "unknown" in name:
                continue  # it needs the slack
            long = agent in ("opse fresh data", "opse theory anytime", "opse doubling", "opse paper doubling")
            K = (1_200 if paper else 600) if long and not states else 200 if paper else 20 if rules else 60
            found[f"{name}: {agent}"] = partial(in_both_loops, make, build, K, states)
            if agent.split()[-1] in ("doubling", "observation", "data", "uniform"):
                found[f"{name}: {agent}, taken up"] = partial(taken_up, make, build, 9 if rules else 45, states)
        found[f"{name}: alarmed"] = partial(in_both_loops, make, HOPEFUL, 60, states, delta=0.5)
    for name in ("finite", "catalogue", "ball", "ellipsoid", "contexts"):
        for agent, build in OF_BANDITS.items():
            if agent.startswith("oplb ") and name not in ("finite", "catalogue"):
                continue  # it is for arms that stay
            noise = {} if name == "catalogue" or agent.startswith("oful") else {"noise": 0.1}  # to leave the incumbent
            make = partial(es.bandits.make, name, 1, **noise)
            found[f"bandit {name}: {agent}"] = partial(in_both_loops, make, build, 400)
            found[f"bandit {name}: {agent}, taken up"] = partial(taken_up, make, build, 300)
        found[f"bandit {name}: alarmed"] = partial(in_both_loops, make, OF_BANDITS["oful 0.3 every"], 400, delta=0.5)
    return found


def made(name, case):
    """The records of a case, column by column, and where they are not alike."""
    found = {f"{name} [{kind}]": {c: hashed(v) for c, v in columns.items()} for kind, columns in case().items()}
    first, *others = found.items()
    apart = ("settings.", "opti") if "optima" in first[1] else ("settings.",)  # the loops find optima in two ways
    shared = [(n, c) for n, columns in others for c in first[1] if c in columns and not c.startswith(apart)]
    return found, [f"{n}: {c} is not that of {first[0]}" for n, c in shared if found[n][c] != first[1][c]]


def main():
    what, file, part = (*sys.argv[1:], "")[:3]
    begun, records, faults = time.perf_counter(), {}, []
    for name, case in cases().items():
        try:
            found, wrong = made(name, case) if part in name else ({}, [])
        except Exception as error:  # the other cases are made all the same
            found, wrong = {}, [f"{name}: {type(error).__name__}: {error}"]
        records, faults = records | found, faults + wrong
    if what == "freeze":
        Path(file).write_text(json.dumps(records, indent=0))
    known = json.loads(Path(file).read_text())
    for n in known | records:
        old = known.get(n, {})
        now = records.get(n, {} if part in n.split(" [")[0] else old)
        faults += [f"{n}: {c} was {old[c]}, is {now.get(c, 'missing')}" for c in old if old[c] != now.get(c)]
        print("".join(f"new: {n}: {c}\n" for c in now if c not in old), end="")
    print("".join(f"{fault}\n" for fault in faults), end="")
    count, seconds = sum(map(len, records.values())), time.perf_counter() - begun
    print(f"{len(records)} records, {count} columns, {len(faults)} differences, {seconds:.0f} s")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
