"""Describe the golden cases in plain numbers: problem, agent, constants for each seed, number of episodes."""

from dataclasses import asdict

import episafe as es
from episafe.envs import PAPER
from episafe.envs.bandits import ENVIRONMENTS as BANDITS
from episafe.registry import BUILDS, CERTIFIERS

SEEDS = [0, 1, 2]
EVERY, DOUBLING = {"rule": "every"}, {"rule": "doubling", "growth": 0.3}
BOLD = es.Constants(0.3, 0.05, 0.1, 0.2, kappa=0.1, lam_max=300.0, num_halvings=25, ridge=0.1, C_theta=0.05)
SMALL, REAL = ("ring", "stepmix", "media"), ("inventory", "battery", "cloud")
TWO = (("tabular", {"num_constraints": 2}), ("queue", {"num_constraints": 2, "horizon": 10}))
LINEAR_PROGRAMS = ("optcmdp", "optcmdp-bonus", "optpess-lp", "dope", "dope-authors")


def make_problem(told, seed):
    if told["kind"] == "bandit":
        return es.bandits.make(told["name"], seed, **told["options"])
    return es.make(told["name"], seed, told["variant"], **told["options"])


def numbers_of(constants):
    """Return all constants as plain numbers."""
    derived = ("level", "statement", "scope", "calibrated_for", "only_proposes")
    return {name: value for name, value in asdict(constants).items() if name not in derived}


def case_of(env, name, K, *, variant="text", env_variant="released", options=None, kind="cmdp", replan=EVERY, **own):
    """Describe one case; `own` has the constants (problem to Constants), certifier, agent options and a label."""
    constants, certifier = own.pop("constants", None), own.pop("certifier", None)
    rule, per_seed, label = own.pop("rule", None), own.pop("per_seed", {}), own.pop("label", "")
    problem = {"kind": kind, "name": env, "variant": env_variant, "options": options or {}}
    listed, error = {}, None
    try:
        problems = [make_problem(problem, seed) for seed in SEEDS]
        listed = {key: [value(one) for one in problems] for key, value in per_seed.items()}
        if constants is not None:
            listed["constants"] = [numbers_of(constants(one)) for one in problems]
    except (TypeError, ValueError) as refusal:
        error = f"{type(refusal).__name__}: {refusal}"
    agent = {"name": name, "variant": variant, "constants_rule": rule, "certifier": certifier, "options": own}
    agent |= {"replan": None if certifier else replan, "per_seed": listed}
    where = "-".join(
        [env]
        + [f"{v}" for v in [env_variant] * (env_variant == "text")]
        + ["two"] * ("num_constraints" in (options or {}))
    )
    parts = (
        [name] + ([certifier["name"]] if certifier else []) + ["released"] * (variant == "released") + [rule or label]
    )
    parts += ["doubling"] * (replan == DOUBLING) + [where]
    told = {"id": "_".join(part for part in parts if part), "problem": problem, "agent": agent}
    return told | {"num_episodes": K, "seeds": SEEDS} | ({"error": error} if error else {})


def cmdp_cases():
    """Yield the cases of constrained Markov decision processes."""
    proposing = {"rule": "proposing", "constants": lambda p: es.Constants.proposing()}
    bold, tuned = {"rule": "bold", "constants": lambda p: BOLD}, {"constants": lambda p: es.Constants.tuned(p.task)}
    places = [(env, {}) for env in (*PAPER, *SMALL)]
    for env, options in (*places, *TWO):
        at, slow = {"env": env, "options": options}, env in ("linear", "queue")
        paper = {"rule": "paper", "constants": lambda p, env=env: es.Constants.paper(env)}
        for replan in (EVERY, DOUBLING):
            K = 300 if replan == EVERY else 1_000
            for given in (bold, {"rule": "tuned", **tuned}, *[paper] * (env in PAPER)):
                yield case_of(name="opse", K=K, replan=replan, **at, **given)
            ghosh = {"rule": "paper", "constants": lambda p, env=env: es.Constants.paper(env, "ghosh")}
            for given in (bold, *[ghosh] * (env in PAPER)):
                yield case_of(name="ghosh", K=K, replan=replan, **at, **given)
        for name in ("opse", "ghosh") if env in PAPER and not options else ():  # several limits ignore it
            own = {"rule": "paper", "constants": lambda p, env=env, name=name: es.Constants.paper(env, name)}
            for replan, given in ((EVERY, own), (DOUBLING, bold)):
                yield case_of(name=name, K=150, variant="released", replan=replan, **at, **given)
        if env in PAPER and not options:
            yield case_of(name="opse", K=300, env_variant="text", **at, **paper)
            theory = {"rule": "theory", "constants": lambda p: es.Constants.theory(p.task, 200)}
            yield case_of(name="opse", K=200, **at, **theory)
        dope = {"constants": lambda p: es.Constants.paper("tabular", "dope"), "rule": "paper"}  # C_r and C_u are 1
        box = {"radius": {"deviation": 1.0, "bias": 1.0}, "num_safe_episodes": 0}
        for replan in (EVERY, DOUBLING):
            yield case_of(name="dope", K=20 if slow else 60, replan=replan, **at, **dope, **box)
        narrow = {"radius": {"deviation": 0.05, "bias": 0.05}, "num_safe_episodes": 10}
        yield case_of(name="dope", K=60, replan=DOUBLING, **at, **bold, **narrow)
        for name, how in BUILDS.items():
            if "bonus" in how.options:
                K = (20 if slow else 60) if name in LINEAR_PROGRAMS else 60 if slow else 200
                own = {"bonus": how.arguments(None)["bonus"]} | ({"delta": 0.05} if "delta" in how.options else {})
                own |= {"num_episodes": K} if "num_episodes" in how.takes else {}
                yield case_of(name=name, K=K, **at, **own)
        for name in ("uniform", "incumbent", "optimum"):
            yield case_of(name=name, K=20, replan=None, **at)
    for env, options in (*places, *((env, {}) for env in (*REAL, "shop")), *TWO):
        at = {"env": env, "options": options}
        for name in sorted(CERTIFIERS.keys() - {"model"}):
            K = 300 if name in ("hindsight", "box") else 1_000
            yield case_of(name="opse", K=K, certifier={"name": name, "delta": 0.05}, **at, **proposing)
    for env in REAL:
        yield case_of(env, "opse", 100, **bold)


def bandit_cases():
    """Yield the cases of linear bandits; little noise lets the learners leave the incumbent in few rounds."""
    told = lambda p: p.evaluate(p.safe_policy())[1]  # noqa: E731
    quiet, two = {"noise": 0.1}, {"noise": 0.1, "num_constraints": 2}
    for env, options in (*((env, {} if env == "catalogue" else quiet) for env in BANDITS), ("finite", two)):
        at = {"env": env, "options": options, "kind": "bandit", "env_variant": ""}
        yield case_of(name="incumbent", K=20, replan=None, **at)
        for name in ("oplbsp", "oplb", "safe-lucb", "roful", "oful"):
            own = {"per_seed": {"known_utility": told}} if name == "oplb" else {}
            for radius in ("paper", "determinant", 0.3):
                for replan in (EVERY, DOUBLING):
                    K = 150 if replan == EVERY else 400
                    given = {"radius": radius, "num_rounds": K, "delta": 0.05, "label": f"{radius}"}
                    yield case_of(name=name, K=K, replan=replan, **at, **own, **given)


def totals_cases():
    """Yield the cases of es.Rollout, which learns from the totals of episodes; `run_totals` is its world."""
    one = {"threshold": 0.5, "slack": 0.2, "utility": {"incumbent": 0.7, "v2": 0.62, "v3": 0.4}}
    two = {"threshold": [0.5, 0.3], "slack": [0.2, 0.3], "utility": {"incumbent": [0.7, 0.6], "v2": [0.6, 0.5]}}
    for name, means in (("one", one), ("unknown-slack", one | {"slack": None}), ("two", two)):
        reward = {"incumbent": 0.3, "v2": 0.5, "v3": 0.6}
        problem = {"kind": "totals", **means, "reward": {who: reward[who] for who in means["utility"]}, "spread": 0.25}
        agent = {"name": "rollout", "options": {"delta": 0.05}}
        yield {"id": f"rollout_{name}", "problem": problem, "agent": agent, "num_episodes": 600, "seeds": SEEDS}
