"""Conformance batteries for agents, certifiers and environments of your own: see docs/testing.md.

`check_agent`, `check_bandit_agent`, `check_certifier` and `check_environment` run everything. The single checks are
listed by `agent_checks()`, `certifier_checks()` and `environment_checks()`, for `pytest.mark.parametrize`.
"""

from episafe.testing.agents import agent_checks, check_agent, check_bandit_agent
from episafe.testing.certifiers import Boastful, certifier_checks, check_certifier
from episafe.testing.environments import check_environment, environment_checks
from episafe.testing.problems import small_bandits, small_problems

__all__ = [
    "Boastful",
    "agent_checks",
    "certifier_checks",
    "check_agent",
    "check_bandit_agent",
    "check_certifier",
    "check_environment",
    "environment_checks",
    "small_bandits",
    "small_problems",
]
