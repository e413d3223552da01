"""The names of `es.`: where each of them is made. Imported when the first of them is asked for."""

from episafe import certify
from episafe.agents.ablated_opse import AblatedOPSE
from episafe.agents.base import Agent
from episafe.agents.dope import DOPE
from episafe.agents.efroni2020 import OptCMDP, OptCMDPBonus, OptDual, OptPrimalDual
from episafe.agents.fixed import Fixed
from episafe.agents.ghosh2022 import Ghosh2022
from episafe.agents.ghosh2024 import Ghosh2024
from episafe.agents.li2023 import EpsMix, StepMix
from episafe.agents.liu2021 import OptPessLP, OptPessPrimalDual
from episafe.agents.lsvi_ucb import LSVIUCB
from episafe.agents.opse import OPSE
from episafe.agents.rollout import Rollout
from episafe.agents.triple_q import TripleQ
from episafe.deployment.audit import audit
from episafe.deployment.episode_export import export_episodes
from episafe.deployment.open_session import open  # es.open, never imported by itself
from episafe.deployment.repair import repair
from episafe.deployment.session_book import Deployment
from episafe.envs import make
from episafe.errors import DamagedFile, Infeasible, InUse, InvalidEpisode, InvalidProblem, NotKept
from episafe.gym.adapter import GymCMDP, from_gymnasium
from episafe.gym.vector import VectorGymCMDP
from episafe.learning.constants import Constants
from episafe.learning.loaded_policy import load_policy
from episafe.learning.multiplier_search import Bisection, Sections, WarmStart
from episafe.learning.planner import Doubling, Every
from episafe.learning.transition_counts import Radius
from episafe.logs.warm_start import learn_log
from episafe.monitors import Alarm, Monitors
from episafe.problems import features
from episafe.problems.chance_constraint import chance
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.policy import MixturePolicy, Policy, TablePolicy
from episafe.problems.sampled_problem import SampledCMDP, SampledTask
from episafe.problems.task import Constraint, Task
from episafe.runs.data_frames import load_records, results
from episafe.runs.forecast import Forecast, forecast
from episafe.runs.kept_run import resume
from episafe.runs.live_episodes import estimate, play, play_batch
from episafe.runs.measured_slack import measure_slack
from episafe.runs.record import Record
from episafe.runs.run import run
from episafe.types import Episode, Plan

__all__ = [
    "DOPE",
    "LSVIUCB",
    "OPSE",
    "AblatedOPSE",
    "Agent",
    "Alarm",
    "Bisection",
    "Constants",
    "Constraint",
    "DamagedFile",
    "Deployment",
    "Doubling",
    "Episode",
    "EpsMix",
    "Every",
    "Fixed",
    "Forecast",
    "Ghosh2022",
    "Ghosh2024",
    "GymCMDP",
    "InUse",
    "Infeasible",
    "InvalidEpisode",
    "InvalidProblem",
    "LinearCMDP",
    "MixturePolicy",
    "Monitors",
    "NotKept",
    "OptCMDP",
    "OptCMDPBonus",
    "OptDual",
    "OptPessLP",
    "OptPessPrimalDual",
    "OptPrimalDual",
    "Plan",
    "Policy",
    "Radius",
    "Record",
    "Rollout",
    "SampledCMDP",
    "SampledTask",
    "Sections",
    "StepMix",
    "TablePolicy",
    "Task",
    "TripleQ",
    "VectorGymCMDP",
    "WarmStart",
    "audit",
    "certify",
    "chance",
    "estimate",
    "export_episodes",
    "features",
    "forecast",
    "from_gymnasium",
    "learn_log",
    "load_policy",
    "load_records",
    "make",
    "measure_slack",
    "open",
    "play",
    "play_batch",
    "repair",
    "results",
    "resume",
    "run",
]
