"""Every registered agent, certifier and environment under the batteries of `episafe.testing`."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import episafe as es
import mutant_agents as mutants
import stored
from conftest import constants
from episafe import testing
from episafe.envs import ENVIRONMENTS
from episafe.registry import AGENTS as NAMES
from episafe.registry import BANDIT_AGENTS as BANDIT_NAMES
from episafe.registry import CERTIFIERS, COUNTED, AgentFacts, Build, make_certifier
from episafe.testing import persistence_checks
from episafe.testing.problems import exogenous
from mutant_certifiers import CERTIFIERS as BROKEN_CERTIFIERS
from mutant_certifiers import Certifier
from mutant_environments import ENVIRONMENTS as BROKEN_ENVIRONMENTS

AGENTS = {
    "opse": lambda task: es.OPSE(task, constants()),
    "opse-doubling": lambda task: es.OPSE(task, constants(), es.Doubling(0.5)),
    "opse-observation": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation()),
    "opse-roomier": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Roomier()),
    "opse-fresh-data": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.FreshData()),
    "opse-released": lambda task: es.OPSE(task, constants(), variant="released"),
    "opse-box": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Box()),
    "ghosh": lambda task: es.Ghosh2024(task, constants()),
    "ghosh-released": lambda task: es.Ghosh2024(task, constants(), variant="released"),
    "dope": lambda task: es.DOPE(task, constants(C_u=0.02)),
    "dope-doubling": lambda task: es.DOPE(task, constants(C_u=0.02), es.Doubling(0.5)),
    "dope-authors": lambda task: es.DOPE.authors(task, 1000, bonus=1e-4),
    "optpess-lp": lambda task: es.OptPessLP(task, 1000, bonus=1e-3),
    "optcmdp": lambda task: es.OptCMDP(task, 1000, bonus=0.01),
    "optcmdp-bonus": lambda task: es.OptCMDPBonus(task, 1000, bonus=0.01),
    "optdual": lambda task: es.OptDual(task, 1000, bonus=0.01),
    "optprimaldual": lambda task: es.OptPrimalDual(task, 1000, bonus=0.001),
    "optpess-primaldual": lambda task: es.OptPessPrimalDual(task, 1000, bonus=0.001),
    **{
        f"opse-no-{part}": lambda task, part=part: es.AblatedOPSE(task, constants(), without=part)
        for part in ("compensation", "entropy", "randomness", "incumbent")
    },
    "lsvi-ucb": lambda task: es.LSVIUCB(task, 1000, bonus=0.001),
    "ghosh2022": lambda task: es.Ghosh2022(task, 1000, bonus=0.001),
    "epsmix": lambda task: es.EpsMix(task, bonus=1e-4),
    "stepmix": lambda task: es.StepMix(task, bonus=1e-4),
    "triple-q": lambda task: es.TripleQ(task, 1000, bonus=1e-4),
    "uniform": lambda task: es.Fixed(task, "uniform"),
    "incumbent": lambda task: es.Fixed(task, "incumbent"),
    "optimum": lambda task: es.Fixed(task, _any_policy(task), "optimum"),
}
BANDIT_AGENTS = {
    "oplbsp": lambda task: es.bandits.OPLBSP(task, 10_000, radius=0.3),
    "oplbsp-determinant": lambda task: es.bandits.OPLBSP(task, 10_000, radius="determinant", replan=es.Doubling(0.3)),
    "oplb": lambda task: es.bandits.OPLB(task, 10_000, known_utility=task.threshold + task.slack, radius="determinant"),
    "safe-lucb": lambda task: es.bandits.SafeLUCB(task, 10_000, radius="determinant"),
    "roful": lambda task: es.bandits.ROFUL(task, 10_000, radius="determinant"),
    "oful": lambda task: es.bandits.OFUL(task, 10_000, radius="determinant"),
    "incumbent": lambda task: es.bandits.Incumbent(task),
}
TRACED_AGENTS = {
    "opse-hindsight": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Hindsight(0.1)),
}
PROBLEMS, BANDITS = testing.small_problems(), testing.small_bandits()


def others(entries, kind, by_hand):
    """The agents of the registry that are not built by hand above, as they are by default; those by traces apart."""
    made = {name: partial(_built, entry, kind) for name, entry in entries.items() if name not in by_hand}
    traced = [name for name in made if getattr(entries[name], kind).exogenous_only]
    return {name: make for name, make in made.items() if name not in traced}, {name: made[name] for name in traced}


def _built(entry, kind, task):
    asked = {"num_episodes": 1000, "num_rounds": 10_000, "delta": 0.05, "replan": es.Every()}
    scales = es.Constants.proposing() if entry.only_proposes else constants()
    return getattr(entry, kind).make(SimpleNamespace(task=task), constants=scales, **asked)


def needs_listed_states(make):
    """Whether an agent says that it cannot be built without."""
    try:
        make(PROBLEMS["functions"].task)
    except TypeError:
        return True
    return False


MORE, MORE_TRACED = others(NAMES, "mdp", AGENTS | TRACED_AGENTS)
AGENTS, TRACED_AGENTS = AGENTS | MORE, TRACED_AGENTS | MORE_TRACED
BANDIT_AGENTS |= others(BANDIT_NAMES, "bandit", BANDIT_AGENTS)[0]
STEPPED = ("optdual", "optprimaldual", "optpess-primaldual")
COUNTING = ("dope-authors", "optpess-lp", "optcmdp", "optcmdp-bonus", *STEPPED, "epsmix", "stepmix", "triple-q")
LISTED_ONLY = (
    "opse-fresh-data",
    "opse-box",
    "opse-released",
    "ghosh-released",
    "dope",
    "dope-doubling",
    "optimum",
    "opse-no-entropy",
    *COUNTING,
    *(name for name, make in MORE.items() if needs_listed_states(make)),
)


def _any_policy(task):
    """Where the optimum is not known, a policy by a table as it is."""
    return np.full(task.reward.shape, 1 / task.num_actions)


def cases(agents, problems, refused):
    """(check, agent, problem) for all that go together."""
    return [
        pytest.param(
            check,
            name,
            problem,
            id=f"{check.__name__.removeprefix('check_')}-{name}-{problem}",
        )
        for name in agents
        for problem in problems
        for check in testing.agent_checks()
        if not refused(name, problem)
    ]


@pytest.mark.parametrize(
    ("check", "name", "problem"),
    cases(
        AGENTS,
        PROBLEMS,
        refused=lambda name, problem: name in LISTED_ONLY and problem == "functions",
    ),
)
def test_every_agent_conforms(check, name, problem):
    check(AGENTS[name], PROBLEMS[problem])


@pytest.mark.parametrize(
    ("check", "name", "problem"),
    cases(BANDIT_AGENTS, BANDITS, lambda name, problem: (name, problem) == ("oplb", "ball")),
)
def test_every_bandit_agent_conforms(check, name, problem):
    check(BANDIT_AGENTS[name], BANDITS[problem])


@pytest.mark.parametrize("check", testing.certifier_checks(), ids=lambda check: check.__name__[6:])
@pytest.mark.parametrize("name", CERTIFIERS)
def test_every_certifier_conforms(check, name):
    check(partial(make_certifier, name), constants(C_u=1.0) if name == "model" else None)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_conforms(name):
    testing.check_environment(es.make(name, seed=3))


@pytest.mark.parametrize("name", ["walk features", "drift cells"])
def test_the_batteries_know_gymnasium_too(name):
    testing.check_environment(stored.WORLDS[name]())
    testing.check_agent(stored.AGENTS["opse"], {name: stored.WORLDS[name]()})


def test_bandits_whose_incumbent_changes_with_the_round_conform():
    problem = {"contexts": es.bandits.make("contexts", seed=0)}
    testing.check_bandit_agent(BANDIT_AGENTS["oplbsp"], problem)


def test_agents_of_this_package_are_known_to_have_a_whole_state():
    """So that sessions and runs keep checkpoints of them."""
    assert all(make(PROBLEMS["one-hot"].task).is_stored for make in AGENTS.values())
    assert all(make(BANDITS["arms"].task).is_stored for make in BANDIT_AGENTS.values())
    assert not mutants.Right(PROBLEMS["one-hot"].task).is_stored


@pytest.mark.parametrize("check", testing.agent_checks(), ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", TRACED_AGENTS)
def test_every_agent_that_replays_traces_conforms(check, name):
    check(TRACED_AGENTS[name], exogenous())


def test_an_agent_is_under_the_batteries_once_it_is_registered():
    """Whatever its entry says that it needs; what is built by hand above is built so."""
    entries = {
        "mine": AgentFacts("", "", mdp=Build("episafe.agents.triple_q:TripleQ", COUNTED, lambda _: {"bonus": 1.0})),
        "told": AgentFacts("", "", mdp=Build("episafe.agents.opse:OPSE")),
        "traced": NAMES["opse-hindsight"],
        "opse": NAMES["opse"],
    }
    found, traced = others(entries, "mdp", {"opse"})
    assert found.keys() == {"mine", "told"} and traced.keys() == {"traced"}
    assert isinstance(found["mine"](PROBLEMS["one-hot"].task), es.TripleQ)
    assert needs_listed_states(found["mine"]) and not needs_listed_states(found["told"])
    assert NAMES.keys() <= AGENTS.keys() | TRACED_AGENTS.keys() and BANDIT_NAMES.keys() <= BANDIT_AGENTS.keys()


@pytest.mark.parametrize("name", LISTED_ONLY)
def test_an_agent_for_listed_states_refuses_others(name):
    with pytest.raises((TypeError, ValueError, AttributeError)):
        AGENTS[name](PROBLEMS["functions"].task)


def test_the_agents_above_leave_the_incumbent():
    """Else the batteries would see little of them."""
    for name in ("opse", "opse-doubling", "opse-observation", "opse-fresh-data", "opse-box", "dope", *COUNTING):
        record = es.run(PROBLEMS["one-hot"], AGENTS[name](PROBLEMS["one-hot"].task), 200)
        assert "search" in record.sources or "zero" in record.sources, name
    for name in ("oplbsp", "oplb", "safe-lucb", "roful"):
        record = es.bandits.run(BANDITS["arms"], BANDIT_AGENTS[name](BANDITS["arms"].task), 200)
        assert "search" in record.sources, name


@pytest.mark.parametrize("name", ["opse", "ghosh", "dope"])
def test_another_seed_gives_another_run(name):
    cmdp = es.make("streaming", seed=3)
    first, second = (es.run(cmdp, AGENTS[name](cmdp.task), num_episodes=200, seed=seed) for seed in (5, 6))
    assert (first.reward_values != second.reward_values).any()


@pytest.mark.parametrize("name", [name for name in AGENTS if name not in LISTED_ONLY[2:]])
def test_a_safe_plan_never_has_a_bound_that_passed(name):
    """Whoever sees a bound of at least b sees it deployed."""
    cmdp = PROBLEMS["one-hot"]
    record = es.run(cmdp, AGENTS[name](cmdp.task), 150)
    assert not ((record.utility_bounds >= cmdp.task.threshold) & (record.sources == "safe")).any()


@pytest.mark.parametrize("name", AGENTS)
def test_logs_from_another_start_are_learned_too(name):
    cmdp = PROBLEMS["one-hot"]
    agent = AGENTS[name](cmdp.task)
    agent.learn(es.Episode([1, 0, 1, 0], [0, 1, 0]))
    assert agent.plan().source in ("safe", "zero", "search", "fixed")


@pytest.mark.parametrize("name", ["opse", "opse-observation", "opse-fresh-data", "opse-box"])
def test_a_bound_that_is_not_a_number_never_passes(name):
    agent = AGENTS[name](PROBLEMS["one-hot"].task)
    agent.planner.regression.support.reward[0, 0, 0] = np.nan
    plan = agent.plan()
    assert plan.source == "safe"
    assert np.isnan(plan.utility_bound)


def test_importing_episafe_imports_neither_the_batteries_nor_pytest():
    script = "import sys, episafe; assert not {'episafe.testing', 'pytest'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)
    script = "import sys, episafe.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


# ---- the batteries themselves


def only(checks, name):
    """All checks but one, to skip."""
    return [check.__name__ for check in checks if check.__name__ != name]


def named(mutants):
    return [pytest.param(*mutant, id=f"{getattr(mutant[0], '__name__', '')}-{mutant[1]}") for mutant in mutants]


@pytest.mark.parametrize(("make", "check"), named(mutants.AGENTS))
def test_the_battery_finds_a_broken_agent(make, check):
    with pytest.raises(AssertionError, match=rf"1 of 1 checks failed\n{check}\[one-hot\]: "):
        testing.check_agent(make, {"one-hot": PROBLEMS["one-hot"]}, skip=only(testing.agent_checks(), check))


@pytest.mark.parametrize(("make", "check"), named(mutants.BANDIT_AGENTS))
def test_the_battery_finds_a_broken_bandit_agent(make, check):
    with pytest.raises(AssertionError, match=rf"1 of 1 checks failed\n{check}\[arms\]: "):
        testing.check_bandit_agent(make, {"arms": BANDITS["arms"]}, skip=only(testing.agent_checks(), check))


@pytest.mark.parametrize(("make", "check"), named(BROKEN_CERTIFIERS))
def test_the_battery_finds_a_broken_certifier(make, check):
    with pytest.raises(AssertionError, match=rf"1 of 1 checks failed\n{check}\[opse\]: "):
        testing.check_certifier(make, skip=only(testing.certifier_checks(), check))


@pytest.mark.parametrize(("make", "check"), named(BROKEN_ENVIRONMENTS))
def test_the_battery_finds_a_broken_environment(make, check):
    with pytest.raises(AssertionError, match=rf"1 of 1 checks failed\n{check}\["):
        testing.check_environment(make(), skip=only(testing.environment_checks(), check))


def test_every_check_has_something_that_it_finds():
    """And what is right passes: the agents of which the broken ones are made."""
    for checks, broken in (
        (testing.agent_checks(), mutants.AGENTS),
        (testing.certifier_checks(), BROKEN_CERTIFIERS),
        (testing.environment_checks(), BROKEN_ENVIRONMENTS),
    ):
        assert {check.__name__ for check in checks} == {check for _, check in broken}
    assert testing.check_agent(mutants.Right, {"one-hot": PROBLEMS["one-hot"]})
    persistence_checks.check_settings_tell_the_arguments(mutants.Frank, PROBLEMS["one-hot"])
    assert testing.check_bandit_agent(mutants.RightBandit, {"arms": BANDITS["arms"]})


def test_a_certifier_of_ones_own_may_deploy_mixtures():
    testing.check_certifier(Certifier)


def test_a_battery_runs_to_its_end_and_lists_all_that_failed():
    with pytest.raises(AssertionError, match=r"(?s)6 of 20 checks failed.*same_seed.*session_goes_on"):
        testing.check_agent(mutants.Fickle, {"one-hot": PROBLEMS["one-hot"]})
    with pytest.raises(ValueError, match="no check check_spelling; there are check_policies"):
        testing.check_agent(mutants.Right, skip=["check_spelling"])
    with pytest.raises(AssertionError, match="builds no agent for any problem"):
        testing.check_agent(lambda task: es.Fixed(task, "the best"))
