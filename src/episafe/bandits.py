"""Safe linear bandits: OPLB-SP and its peers, the problem, and environments. Run them with `es.run`."""

from episafe.algorithms.bandit_agent import BanditAgent
from episafe.algorithms.bandit_peers import OFUL, OPLB, ROFUL, Incumbent, SafeLUCB
from episafe.algorithms.oplbsp import OPLBSP
from episafe.envs.bandits import make
from episafe.problems.bandit import ActionPolicy, BanditTask, Ellipsoid, LinearBandit

__all__ = [
    "OFUL",
    "OPLB",
    "OPLBSP",
    "ROFUL",
    "ActionPolicy",
    "BanditAgent",
    "BanditTask",
    "Ellipsoid",
    "Incumbent",
    "LinearBandit",
    "SafeLUCB",
    "make",
]
