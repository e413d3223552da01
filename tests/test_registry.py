"""What the registry says of agents is so, and enough to build each of them again."""

import re
from pathlib import Path

import numpy as np
import pytest

import episafe as es
from episafe import registry
from episafe.deployment.agent_recipe import rebuilt, recipe
from episafe.experiments.agent_choice import build_agent, build_bandit_agent


def built(name, kind):
    if kind == "mdp":
        exogenous = registry.REGISTRY[name].mdp.exogenous_only
        return build_agent(name, es.make("inventory" if exogenous else "tabular", seed=3))
    return build_bandit_agent(name, es.bandits.make("finite", seed=3), 500, 0.05, es.Doubling(0.3))


NAMED = [
    (name, kind) for name, entry in registry.REGISTRY.items() for kind in ("mdp", "bandit") if getattr(entry, kind)
]


@pytest.mark.parametrize(("name", "kind"), NAMED)
def test_an_agent_says_the_name_that_it_is_registered_under(name, kind):
    agent = built(name, kind)
    assert agent.settings()["agent"] == name and agent.problem == kind


@pytest.mark.parametrize(("name", "kind"), NAMED)
def test_a_recipe_builds_the_agent_again(name, kind):
    agent = built(name, kind)
    text, arrays = recipe(agent)
    again = rebuilt(text, arrays, None)
    assert type(again) is type(agent) and again.fingerprint() == agent.fingerprint()
    text, arrays = recipe(agent, agent.task)
    assert rebuilt(text, arrays, agent.task).fingerprint() == agent.fingerprint()


@pytest.mark.parametrize("env", ["ball", "ellipsoid"])
def test_a_bandit_without_listed_arms_has_a_recipe_too(env):
    task = es.bandits.make(env, seed=3).task
    agent = es.bandits.OPLBSP(task, 500, radius=0.6, slack="estimated", optimism=2.0)
    again = rebuilt(*recipe(agent), None)
    assert again.fingerprint() == agent.fingerprint()
    np.testing.assert_array_equal(again.task.incumbent(0), task.incumbent(0))


def test_what_is_given_by_functions_or_by_others_has_no_recipe():
    contexts = es.bandits.make("contexts", seed=3)
    assert recipe(es.bandits.OPLBSP(contexts.task, 500)) is None

    class Mine(es.OPSE):
        pass

    cmdp = es.make("tabular", seed=3)
    assert recipe(Mine(cmdp.task, es.Constants.tuned(cmdp.task))) is None


@pytest.mark.parametrize("text", ['{"agent": "eval"}', '{"agent": "OPSE", "constants": {"is": "Path"}}', "[]", "x"])
def test_a_recipe_that_names_what_is_not_registered_is_refused(text):
    with pytest.raises(es.DamagedFile, match="hand it over"):
        rebuilt(text, {}, es.make("tabular").task)


def test_the_page_of_agents_and_the_list_say_every_multiplier_that_is_not_1():
    """Nothing is proved at those."""
    page = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()
    said = dict(re.findall(r"^\| (0\.\d+) \| (`.*`) \|$", page, flags=re.M))
    of_page = {name: float(bonus) for bonus, names in said.items() for name in re.findall(r"`([^`]+)`", names)}
    multipliers = {name: entry.multiplier for name, entry in registry.AGENTS.items()}
    assert of_page == {name: multiplier for name, multiplier in multipliers.items() if multiplier != 1}
    assert {name: built(name, "mdp").arguments().get("bonus") for name in ("optpess-lp", "triple-q", "opse")} == {
        "optpess-lp": of_page["optpess-lp"], "triple-q": of_page["triple-q"], "opse": None,
    }  # fmt: skip
    assert registry.REGISTRY["optpess-lp"].line.endswith("; bonus=0.003 unless set")
    assert registry.REGISTRY["opse"].line == registry.REGISTRY["opse"].summary


def test_an_entry_that_leaves_bonus_to_the_constructor_is_listed_with_no_multiplier():
    build = registry.Build("mine:Mine", takes=("replan",), options=("eps", "bonus"))
    entry = registry.AgentFacts("mine", "Mine", mdp=build)
    assert entry.multiplier == 1 and entry.line == "mine"


@pytest.mark.parametrize(
    "name", [name for name, entry in registry.AGENTS.items() if entry.mdp and "bonus" in entry.mdp.options]
)
def test_the_multiplier_of_an_entry_is_what_its_agent_is_built_with(name):
    given = built(name, "mdp").arguments()
    bonus = given["radius"].cap if "radius" in given else given["bonus"]  # DOPE's authors have it in their radius
    assert bonus == registry.AGENTS[name].multiplier


def test_names_of_classes_are_unique():
    entries = registry.REGISTRY.values()
    builds = [build for entry in entries for build in (entry.mdp, entry.bandit) if build is not None]
    paths = {build.agent for build in builds} | {path for path, _ in registry.CERTIFIERS.values()} | {*registry.PARTS}
    assert len({path.partition(":")[2] for path in paths}) == len(paths)


def test_a_live_bandit_is_audited_without_being_handed_the_agent(tmp_path):
    bandit = es.bandits.make("finite", seed=3)
    with es.open(tmp_path / "shop", es.bandits.OPLBSP(bandit.task, 500, radius=0.6)) as live:
        for action in bandit.task.arms(0)[:5]:
            plan = live.plan()
            live.learn(action, 0.5, 0.5, plan_id=plan.id)
    found = es.audit(tmp_path / "shop")
    assert found.is_whole and found.recomputed == 5
