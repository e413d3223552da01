"""Safe linear bandits: OPLB-SP and its peers, exact answers, environments, and the run loop."""

from episafe.agents.bandits.oplb import OPLB
from episafe.agents.bandits.oplbsp import OPLBSP
from episafe.agents.bandits.rule_agents import OFUL, ROFUL, Incumbent, SafeLUCB
from episafe.agents.base import Agent as BanditAgent
from episafe.envs.bandits import make
from episafe.monitors.round_monitors import Monitors
from episafe.problems.bandit import LinearBandit
from episafe.problems.bandit_actions import Ball, Ellipsoid
from episafe.problems.bandit_policy import BanditPlan, Mixture
from episafe.problems.bandit_task import BanditTask
from episafe.runs.bandit_run import run

__all__ = [
    "OFUL",
    "OPLB",
    "OPLBSP",
    "ROFUL",
    "Ball",
    "BanditAgent",
    "BanditPlan",
    "BanditTask",
    "Ellipsoid",
    "Incumbent",
    "LinearBandit",
    "Mixture",
    "Monitors",
    "SafeLUCB",
    "make",
    "run",
]
