"""Records of the first edition: the same problems, agents and seeds give the same records."""

import json
from pathlib import Path

import numpy as np
import pytest

import episafe2 as es

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
INDEX = json.loads((GOLDEN / "index.json").read_text())
SOURCES = INDEX["sources"]
TOLERANCE = INDEX["tolerance"]
FIXED = ("uniform", "incumbent", "optimum")
CLASSES = {
    "optcmdp": "OptCMDP", "optcmdp-bonus": "OptCMDPBonus", "optdual": "OptDual", "optprimaldual": "OptPrimalDual",
    "optpess-lp": "OptPessLP", "optpess-primaldual": "OptPessPrimalDual", "lsvi-ucb": "LSVIUCB",
    "ghosh2022": "Ghosh2022", "epsmix": "EpsMix", "stepmix": "StepMix", "triple-q": "TripleQ",
}  # fmt: skip
BANDITS = {
    "oplbsp": "OPLBSP", "oplb": "OPLB", "safe-lucb": "SafeLUCB", "roful": "ROFUL", "oful": "OFUL",
    "incumbent": "Incumbent",
}  # fmt: skip
CERTIFIERS = {"observation": "Observation", "hindsight": "Hindsight", "box": "Box", "fresh-data": "FreshData"}


def make_problem(told, seed):
    if told["kind"] == "bandit":
        return es.bandits.make(told["name"], seed, **told["options"])
    return es.make(told["name"], seed, told["variant"], **told["options"])


def make_agent(case, problem, i):
    """Return the agent of a case for its i-th seed."""
    told, name = case["agent"], case["agent"]["name"]
    own = {key: values[i] for key, values in told["per_seed"].items()}
    constants = own.pop("constants", None)
    if constants is not None:
        assert constants.pop("growth") == 0.0  # the second edition has no growing bonuses
        constants = es.Constants(**constants)
    options = told["options"] | own
    if told["replan"] is not None:
        doubling = told["replan"]["rule"] == "doubling"
        options["replan"] = es.Doubling(told["replan"]["growth"]) if doubling else es.Every()
    if told["certifier"]:
        certifier = getattr(es.certify, CERTIFIERS[told["certifier"]["name"]])(delta=told["certifier"]["delta"])
        return es.SafeAgent(problem, certifier)
    if case["problem"]["kind"] == "bandit":
        return getattr(es.bandits, BANDITS[name])(problem, **options)
    if name in ("opse", "ghosh"):
        kind = es.OPSE if name == "opse" else es.Ghosh2024
        return kind(problem.task, constants, variant=told["variant"], **options)
    if name in FIXED:
        return es.Fixed(problem, problem.optimal_policy() if name == "optimum" else name, label=name)
    if name == "dope":
        return es.DOPE(problem, constants, radius=es.Radius(**options.pop("radius")), **options)
    if name == "dope-authors":
        return es.DOPE.authors(problem, **options)
    return getattr(es, CLASSES[name])(problem, **options)


def differences(case, seeds):
    """Return what differs from the golden record, one line per seed and column."""
    found = []
    with np.load(GOLDEN / case["file"]) as golden:
        for i in seeds:
            seed = case["seeds"][i]
            problem = make_problem(case["problem"], seed)
            record = es.run(problem, make_agent(case, problem, i), case["num_episodes"], seed)
            columns = record.columns() | {"acting": record.acting, "optimal_value": record.optimum}
            columns["sources"] = np.array([SOURCES.index(source) for source in record.sources])
            for name in ("optimal_value", "sources", "reward_values", "utility_values", "lams", "bounds", "plan_ids",
                         "reward_totals", "utility_totals", "optima", "components", "acting"):  # fmt: skip
                if f"seed{seed}.{name}" in golden.files and name in columns:
                    old, new = golden[f"seed{seed}.{name}"], np.asarray(columns[name])
                    wrong = old != new if old.dtype.kind == "U" else ~np.isclose(new, old, 0, TOLERANCE, equal_nan=True)
                    if wrong.any():
                        first = np.argwhere(np.atleast_1d(wrong))[0].tolist()
                        one, other = np.atleast_1d(old)[tuple(first)], np.atleast_1d(new)[tuple(first)]
                        found.append(
                            f"seed {seed}: {name} differs {wrong.sum()} times, first at {first}: {one} -> {other}"
                        )
    return found


CASES = [case for case in INDEX["cases"] if case["problem"]["kind"] != "totals"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_record_is_that_of_the_first_edition(case):
    assert differences(case, [0]) == []
