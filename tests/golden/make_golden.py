"""Record the first edition of episafe, so that a rewrite can be compared with it.

    python tests/golden/make_golden.py make         # write index.json, records/*.npz and problems.json
    python tests/golden/make_golden.py check        # rebuild every case from index.json and compare it with its record

Add a word to use only the cases whose id contains it. `index.json` describes each case in plain numbers; `build` turns
such a description into an agent of the first edition; another edition needs its own. The seed of a case draws the
problem and starts the run. Lists in `per_seed` follow `seeds`.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from pkgutil import resolve_name

import gymnasium
import numpy as np
from golden_cases import SEEDS, bandit_cases, cmdp_cases, make_problem, totals_cases

import episafe as es
from episafe.envs import ENVIRONMENTS, PAPER
from episafe.envs.bandits import ENVIRONMENTS as BANDITS
from episafe.registry import BANDIT_BUILDS, BUILDS, CERTIFIERS
from episafe.types import SOURCES

HERE, TOLERANCE = Path(__file__).parent, 1e-10


def replan_of(told):
    return es.Every() if told["rule"] == "every" else es.Doubling(told["growth"])


def build(case, problem, i):
    """Build the agent of a case for its i-th seed."""
    told, name = case["agent"], case["agent"]["name"]
    own = {key: values[i] for key, values in told["per_seed"].items()}
    constants = es.Constants(**own.pop("constants")) if "constants" in own else None
    task, options = problem.task, told["options"] | own
    if told["certifier"]:
        certifier = resolve_name(CERTIFIERS[told["certifier"]["name"]][0])(told["certifier"]["delta"])
        return es.OPSE(task, constants, certifier=certifier)
    if name in ("opse", "ghosh"):
        kind = es.OPSE if name == "opse" else es.Ghosh2024
        return kind(task, constants, replan_of(told["replan"]), variant=told["variant"])
    if name in ("uniform", "incumbent", "optimum") and case["problem"]["kind"] == "cmdp":
        return es.Fixed(task, problem.optimal_policy() if name == "optimum" else name)
    given = {} if told["replan"] is None else {"replan": replan_of(told["replan"])}
    if name == "dope":
        return es.DOPE(task, constants, radius=es.Radius(**options.pop("radius")), **options, **given)
    builds = BUILDS if case["problem"]["kind"] == "cmdp" else BANDIT_BUILDS
    return resolve_name(builds[name].agent)(task, **options, **given)


def run_case(case):
    """Return the columns of the records, and the fingerprints of the problems; the first axis is the seed."""
    found = []
    for i, seed in enumerate(case["seeds"]):
        problem = make_problem(case["problem"], seed)
        run = es.bandits.run if case["problem"]["kind"] == "bandit" else es.run
        record = run(problem, build(case, problem, i), case["num_episodes"], seed)
        columns = {"bounds" if name == "utility_bounds" else name: getattr(record, name) for name in record.columns()}
        columns |= {"sources": np.array([SOURCES.index(s) for s in record.sources], np.int8), "acting": record.acting}
        columns |= {"weights": record.weights, "optimal_value": record.optimum, "fingerprint": fingerprint(problem)}
        found.append({name: np.asarray(columns[name]) for name in columns.keys() - {"acting_numbers", "components"}})
    widest = max(one["weights"].shape[1] for one in found)
    for one in found:
        one["weights"] = np.pad(one["weights"], ((0, 0), (0, widest - one["weights"].shape[1])))
    return stacked(found)


def stacked(found):
    """Return one array per column; its first axis is the seed."""
    return {name: np.stack([one[name] for one in found]) for name in sorted(found[0])}


def fingerprint(problem):
    """Return sums of P, reward and utility; of a bandit, sums of theta_r, theta_u and the first arms."""
    if isinstance(problem, es.bandits.LinearBandit):
        arms = problem.task.actions.root if hasattr(problem.task.actions, "root") else problem.task.arms(0)
        return np.array([problem.theta_r.sum(), problem.theta_u.sum(), arms.sum()])
    utilities = [one.utility for one in problem.task.constraints]
    weights = np.arange(problem.P.size).reshape(problem.P.shape) % 97  # P alone sums to HSA
    return np.array([np.sum(problem.P * weights), problem.task.reward.sum(), np.sum(utilities)])


def run_totals(case):
    """Run es.Rollout in a world of totals: a mean for each policy, and noise that is uniform in [-spread, spread].

    Each episode draws two numbers: `coin` picks the first component whose cumulated weight exceeds it, `noise` in
    [0, 1) moves every total by spread * (2 * noise - 1).
    """
    told, found, width = case["problem"], [], np.shape(case["problem"]["threshold"])
    for seed in case["seeds"]:
        candidates = {name: name for name in told["utility"] if name != "incumbent"}
        agent = es.Rollout(told["threshold"], told["slack"], candidates, "incumbent", case["agent"]["options"]["delta"])
        rng, names, rows = np.random.default_rng(seed), list(told["utility"]), []
        for _ in range(case["num_episodes"]):
            coin, noise = rng.random(2)
            plan = agent.plan()
            parts, shares = getattr(plan.policy, "components", [plan.policy]), getattr(plan.policy, "weights", [1.0])
            component = int(np.searchsorted(np.cumsum(shares)[:-1], coin, side="right"))
            acting, moved = parts[component].name, told["spread"] * (2 * noise - 1)
            utility, reward = np.array(told["utility"][acting]) + moved, told["reward"][acting] + moved
            said = {part.name: share for part, share in zip(parts, shares, strict=True)}
            bounds = [np.broadcast_to(agent.bounds().get(name, np.nan), width) for name in names]
            row = {"sources": SOURCES.index(plan.source), "bounds": np.broadcast_to(plan.utility_bound, width)}
            row |= {"acting": names.index(acting), "weights": [said.get(name, 0.0) for name in names]}
            rows.append(row | {"all_bounds": bounds})
            agent.learn(es.Episode.of_totals(utility.tolist(), float(reward), component=component), plan_id=plan.id)
        found.append({key: np.array([row[key] for row in rows]) for key in rows[0]})
    return stacked(found)


def described(env, seed, variant):
    """Return what problems.json says about one problem."""
    bandit = env in BANDITS
    problem = es.bandits.make(env, seed) if bandit else es.make(env, seed, variant)
    task, safe = problem.task, problem.safe_policy() if bandit else problem.task.safe_policy
    reward, utility = problem.evaluate(safe)
    told = {"kind": "bandit" if bandit else "cmdp", "name": env, "seed": seed, "variant": variant}
    told |= {"fingerprint": fingerprint(problem).tolist(), "threshold": np.asarray(task.limits).tolist()}
    told |= {"slack": [one.slack for one in task.constraints], "incumbent": [reward, np.asarray(utility).tolist()]}
    told["optimal_value"] = problem.optimal_value()
    if bandit:
        return told | {"shapes": {"dim": task.dim}, "noise": task.noise, "norm_bound": task.norm_bound}
    shapes = {"H": task.horizon, "S": task.num_states, "A": task.num_actions, "d": task.dim}
    told |= {"shapes": shapes, "initial_state": int(task.initial_state), "one_hot": bool(task.one_hot)}
    sums = {
        "P_sum": problem.P.sum(),
        "reward_sum": task.reward.sum(),
        "utility_sum": sum(one.utility.sum() for one in task.constraints),
    }
    told |= {key: float(value) for key, value in sums.items()} | {"is_exogenous": bool(task.is_exogenous)}
    return told | ({} if variant == "text" else {"rollout": rollout(env, seed)})


def rollout(env, seed):
    """Play the Gymnasium environment for one episode: reset(seed=seed), then action h % A at step h."""
    world = gymnasium.make(f"episafe.envs.gymnasium:episafe/{env.title()}-v0", problem_seed=seed)
    state, _ = world.reset(seed=seed)
    states, rewards, utilities = [int(state)], [], []
    for h in range(world.unwrapped.cmdp.task.horizon):
        state, reward, _, _, info = world.step(h % world.action_space.n)
        states.append(int(state))
        rewards.append(reward)
        utilities.append(info["utility"])
    return {"states": states, "rewards": rewards, "utilities": utilities}


def make(part):
    """Write the records, the index and the problems."""
    (HERE / "records").mkdir(exist_ok=True)
    index, refused = [], []
    for case in (*cmdp_cases(), *bandit_cases(), *totals_cases()):
        if part not in case["id"]:
            continue
        began = time.perf_counter()
        try:
            if "error" in case:
                raise ValueError(case["error"])
            columns = run_totals(case) if case["problem"]["kind"] == "totals" else run_case(case)
        except (es.InvalidProblem, TypeError, ValueError, NotImplementedError, es.Infeasible) as error:
            refused.append({"id": case["id"], "error": f"{type(error).__name__}: {error}"})
            print("refused", refused[-1])
            continue
        np.savez_compressed(HERE / "records" / f"{case['id']}.npz", **columns)
        index.append(case | {"file": f"records/{case['id']}.npz"})
        print(f"{time.perf_counter() - began:6.1f} s  {case['id']}", flush=True)
    if part:
        return
    write = {"episafe": es.__version__, "sources": SOURCES, "tolerance": TOLERANCE, "cases": index, "refused": refused}
    (HERE / "index.json").write_text(json.dumps(write, indent=1) + "\n")
    places = [(env, variant) for env in ENVIRONMENTS for variant in ("released", *["text"] * (env in PAPER))]
    told = [described(env, seed, variant) for env, variant in (*places, *((b, "") for b in BANDITS)) for seed in SEEDS]
    (HERE / "problems.json").write_text(json.dumps(told, indent=1) + "\n")


def check(part):
    """Rebuild every case from index.json and exit with 1 if a record differs."""
    wrong = 0
    for case in json.loads((HERE / "index.json").read_text())["cases"]:
        if part not in case["id"]:
            continue
        columns = run_totals(case) if case["problem"]["kind"] == "totals" else run_case(case)
        with np.load(HERE / case["file"]) as known:
            for name in known.files:
                old, new = known[name], columns[name]
                exact = old.dtype.kind == "U"
                if not (np.array_equal(old, new) if exact else np.allclose(new, old, 0, TOLERANCE, equal_nan=True)):
                    wrong += 1
                    print(f"{case['id']}: {name} differs")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
