"""Safe linear bandits: OPLB-SP and its peers, the problem, and environments. Run them with `es.run`."""

from episafe2.algorithms.bandit_agent import BanditAgent
from episafe2.algorithms.bandit_peers import OFUL, OPLB, ROFUL, Incumbent, SafeLUCB
from episafe2.algorithms.oplbsp import OPLBSP
from episafe2.envs.bandits import make
from episafe2.problems.bandit import ActionPolicy, BanditTask, Ellipsoid, LinearBandit

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
