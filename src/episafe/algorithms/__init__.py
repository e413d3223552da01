"""Algorithms of the literature, one file per paper."""

from importlib import import_module
from pkgutil import iter_modules

from episafe.core.agent import AGENTS, AgentFactory, AgentFacts


def registered_agents() -> dict[str, tuple[AgentFacts, AgentFactory]]:
    """Return every registered agent by name; imports all files of this package, and `SafeAgent`."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    import_module("episafe.certify.safe_agent")
    return AGENTS
