"""The compiled loop for OPSE under `certify.Observation` with several constraints."""

import math
from typing import Any

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.certify.observation import ObservationCertificate
from episafe.kernels.episode_trace import Trace
from episafe.kernels.several_loop import SeveralOnTrial, play_several
from episafe.kernels.simulation import World as KnownWorld
from episafe.kernels.simulation import running_sums
from episafe.runs.columns import Columns
from episafe.runs.fast.mixture_loop import MixtureLoop
from episafe.types import amounts


def begin(world: Any, agent: Any, columns: Columns, first: int, trace: Trace | None) -> "SeveralLoop | None":
    """The loop, if the certificate is just that of `Observation`, steps share no data, no total voids it, and nothing
    was promoted."""
    if type(agent.certificate) is not ObservationCertificate or agent.task.num_constraints == 1:
        return None
    pairs = zip(agent.task.constraints, world.problem.task.constraints, strict=True)
    holds = all(told.least_total <= true.least_total for told, true in pairs) and not agent.void
    plain = not agent.task.time_homogeneous and agent.promoted == INCUMBENT
    return SeveralLoop(world, agent, trace) if holds and plain else None


class SeveralLoop(MixtureLoop):
    """A run of OPSE under `Observation` with m constraints."""

    def _begin(self, cmdp: Any, world: Any, num_rows: int) -> None:
        task, m = cmdp.task, cmdp.task.num_constraints
        shape = (num_rows, *task.reward.shape)
        self._world = KnownWorld(cmdp.P, world.kernel, task.reward, task.utilities[0], task.initial_state)
        room = np.zeros((num_rows, m)), np.zeros(num_rows)
        self._on_trial: Any = SeveralOnTrial(
            np.zeros(shape), np.zeros(shape), np.zeros((num_rows, 1 + m)), np.full(num_rows, math.nan),
            np.zeros(num_rows), np.full(num_rows, -1), *room, task.utilities, amounts(task.limits),
        )  # fmt: skip

    def _play(self, columns: Columns, *stretch: Any) -> int:
        sequences = tuple(one.trials for one in self._certificate.ledger.each)
        learner = self._regression.visited, self._regression.model
        assert columns.coins is not None
        done = int(
            play_several(
                self._world, self._on_trial, sequences, learner, self._streams, (columns.facts, columns.coins),
                self._trace, stretch,
            )
        )  # fmt: skip
        parts = int((self._on_trial.rows >= 0).sum())
        if done < stretch[1] and parts > columns.coins.weights.shape[1]:
            columns.widen(parts)
        return done

    def _last(self) -> Any:
        return self._certificate.ledger.as_deployment(self._on_trial.weights)

    def _enter_row(self, i: int, policy: Any) -> None:
        on_trial = self._on_trial
        on_trial.tables[i], on_trial.running[i] = policy.table(), running_sums(policy.table())
        on_trial.values[i], on_trial.lams[i] = np.append(*self._cmdp.evaluate(policy)), self._certificate.ledger.lams[i]
