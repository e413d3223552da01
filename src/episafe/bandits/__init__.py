"""Safe linear bandits: OPLB-SP and its peers, exact answers, environments, and the run loop."""

from episafe.bandits.actions import Ball, Ellipsoid
from episafe.bandits.agents.base import BanditAgent, BanditPlan
from episafe.bandits.agents.incumbent import Incumbent
from episafe.bandits.agents.oful import OFUL
from episafe.bandits.agents.oplb import OPLB
from episafe.bandits.agents.oplbsp import OPLBSP
from episafe.bandits.agents.roful import ROFUL
from episafe.bandits.agents.safe_lucb import SafeLUCB
from episafe.bandits.envs import make
from episafe.bandits.monitors import Monitors
from episafe.bandits.policy import Mixture
from episafe.bandits.problem import LinearBandit
from episafe.bandits.run import run
from episafe.bandits.task import BanditTask

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
