"""episafe: improve a policy online while its expected utility stays above a limit.

Public names are imported when they are first used, so that `import episafe` takes a few milliseconds.
"""

from importlib import import_module
from typing import Any

# name -> the module that makes it; a module stands for itself
_NAMES = {
    # problems
    "LinearCMDP": "problems.linear",
    "SampledCMDP": "problems.sampled",
    "Constraint": "core.task",
    "Task": "core.task",
    "chance": "problems.chance",
    "tail": "problems.chance",
    "make": "envs",
    "from_gymnasium": "gym.adapter",
    "stable_baselines": "gym.adapter",
    "features": "problems.features",
    "Infeasible": "core.errors",
    "InvalidProblem": "core.errors",
    "InvalidEpisode": "core.errors",
    "DamagedLog": "core.errors",
    # policies, plans, episodes
    "Policy": "core.policy",
    "TablePolicy": "core.policy",
    "StepPolicy": "core.policy",
    "Mixture": "core.policy",
    "Plan": "core.types",
    "Episode": "core.types",
    # algorithms of the literature
    "Agent": "core.agent",
    "register": "core.agent",
    "Every": "core.agent",
    "Doubling": "core.agent",
    "Constants": "linear.constants",
    "OPSE": "algorithms.opse",
    "Ghosh2024": "algorithms.ghosh2024",
    "Ghosh2022": "algorithms.ghosh2022",
    "LSVIUCB": "algorithms.lsvi_ucb",
    "DOPE": "algorithms.dope",
    "Radius": "linear.counts",
    "OptCMDP": "algorithms.efroni2020",
    "OptCMDPBonus": "algorithms.efroni2020",
    "OptDual": "algorithms.efroni2020",
    "OptPrimalDual": "algorithms.efroni2020",
    "OptPessLP": "algorithms.liu2021",
    "OptPessPrimalDual": "algorithms.liu2021",
    "StepMix": "algorithms.li2023",
    "EpsMix": "algorithms.li2023",
    "TripleQ": "algorithms.triple_q",
    "Fixed": "algorithms.fixed",
    "bandits": "bandits",
    # the recommended agent
    "SafeAgent": "certify.safe_agent",
    "Family": "certify.family",
    "Rollout": "certify.rollout",
    "certify": "certify",
    # simulations, sessions, data
    "run": "simulation.run",
    "Record": "simulation.record",
    "measure_slack": "simulation.slack",
    "open": "session.session",
    "audit": "session.audit",
    "read_episodes": "data.episodes",
    "load_policy": "data.policies",
    "prove": "data.prove",
    "testing": "testing",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    """Import a public name, `__version__`, or a package."""
    if name == "__version__":
        return import_module("importlib.metadata").version("episafe")
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_NAMES[name]}")
    found = module if _NAMES[name].rpartition(".")[2] == name and name not in vars(module) else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
