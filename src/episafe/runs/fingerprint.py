"""Which agent, for which problem: a hash that a journal begins with."""

import hashlib
import json
from typing import Any

import numpy as np

from episafe.agents.base import Agent
from episafe.problems.task import Task


def fingerprint(agent: Agent) -> str:
    """SHA-256 over the agent's settings and what it is told of its problem."""
    task = agent.task
    digest = hashlib.sha256(json.dumps(agent.settings(), sort_keys=True, default=str).encode())
    told: list[Any] = [task.horizon, task.num_actions, task.dim, task.threshold, task.slack]
    if isinstance(task, Task):
        told += [task.reward, task.utility, task.initial_state, task.safe_policy.table()]
        told += [] if task.phi is None else [task.phi]
    for value in told:
        array = np.ascontiguousarray(value)
        digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
