"""Proposals from recent days: fitted to the last traces at several prices of the limit, tested on later days.

This file is heuristic. It needs no law of chance: it lists the states that the traces lead to.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from episafe.certify.budget import Windows
from episafe.certify.replays import read_trace, replay_statistics
from episafe.core.agent import WEIGHT, Candidate, Goal, Proposer
from episafe.core.errors import InvalidProblem
from episafe.core.policy import Policy, TablePolicy
from episafe.core.task import Task
from episafe.core.types import Array, Document, Episode, IntArray, State
from episafe.problems.moves import chance_key

# All of these were chosen on the road of examples/data/road.csv, days 0 to 250.
PRICES = np.geomspace(0.05, 20.0, 12)  # of a unit of utility in units of reward
MARGINS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75)  # of the incumbent's mean surplus: how far above the limit to aim
FIRST_MARGIN = 2  # its index, before shadows have earned anything
FIRST_FIT, FEW_RECORDS = 5, 10  # traces before the first proposal; records that are better than replays of the fit
SHRINKAGE = 3.0  # traces that the pooled law of a step counts for in each state
AFTER_ALARM = 14  # traces that a restart keeps
MOST_STATES = 2000  # per step; the incumbent acts in others


class Fit(NamedTuple):
    """One policy per price: for each step, the index of each state, and the actions (prices, states)."""

    places: list[dict[int, int]]
    actions: list[IntArray]


class Ladder(Proposer):
    """Proposes from the last days, for systems that drift: one backward induction per price of the limit.

    Each fit is tested on the days after it. The proposal is the mixture of two prices with the most reward whose mean
    utilities over these days exceed the limits by a margin. Each margin has a shadow, a simulated window budget; the
    margin whose shadow earned most is used.

    Args:
        recent: traces that a fit uses.
        tested: days on which a fit is tested; also the length of the shadows' windows.
    """

    def __init__(self, recent: int = 56, tested: int = 28) -> None:
        self.recent, self.tested = recent, tested

    def start(self, task: Task) -> None:
        """Bind the proposer to the task of its agent."""
        if task.move is None or task.horizon is None or task.num_actions is None:
            raise InvalidProblem("Ladder replays traces: give the problem move=…")
        self.task, self._H, self._A = task, task.horizon, task.num_actions
        self._states: list[Any] = list(range(task.num_states or 0))
        self._number: dict[Hashable, int] = {s: s for s in self._states}
        self._moves: dict[tuple[int, int, Hashable], tuple[IntArray, Array] | None] = {}
        self._traces: deque[tuple[Any, ...]] = deque(maxlen=self.recent)
        self._reached: deque[list[set[int]]] = deque(maxlen=self.recent)  # by trace and step
        self._records: deque[Array] = deque(maxlen=self.tested)  # (prices + 1, 1 + m), the incumbent last
        self._fit: Fit | None = None
        self._shadows: list[Shadow] = []
        self._second: Candidate | None = None  # of a mixture of two

    def restart(self) -> None:
        """Keep only the last traces, because fits and records are about other conditions."""
        traces = [(trace, reached) for trace, reached in zip(self._traces, self._reached, strict=True)][-AFTER_ALARM:]
        self._fit, self._second, self._shadows = None, None, []
        self._records.clear()
        self._traces.clear()
        self._reached.clear()
        for trace, reached in traces:
            self._traces.append(trace)
            self._reached.append(reached)

    # what happens from a state

    def _index(self, state: State) -> int:
        key = self.task.key(state)
        if key not in self._number:
            self._number[key] = len(self._states)
            self._states.append(state)
        return self._number[key]

    def _moved(self, h: int, s: int, w: object) -> tuple[IntArray, Array] | None:
        """Return next states (A,) and signals (A, 1 + m); None if `move` fails here."""
        place = 0 if self.task.time_homogeneous and not self.task.random_start else h, s, chance_key(w)
        if place not in self._moves:
            move = self.task.move
            assert move is not None
            try:
                made = [move(h, self._states[s], a, w) for a in range(self._A)]
                signals = np.array([np.append(reward, utilities) for _, reward, utilities in made])
                self._moves[place] = np.array([self._index(one) for one, _, _ in made]), signals
            except Exception:  # of a user's function
                self._moves[place] = None
        return self._moves[place]

    # days

    def observe(self, episode: Episode) -> None:
        """Learn from the trace of an episode, and test every fit on it."""
        trace = () if episode.trace is None else read_trace(self.task, episode.trace)
        if not trace or None in trace:
            return
        here, reached = {self._index(self.task.initial_state)}, list[set[int]]()
        for h, w in enumerate(trace):
            reached.append(here)
            moved = [one for s in here if (one := self._moved(h, s, w)) is not None]
            here = set(np.concatenate([one for one, _ in moved]).tolist()[:MOST_STATES]) if moved else set()
        self._traces.append(trace)
        self._reached.append(reached)
        if self._fit is not None:
            self._records.append(self._totals(self._fit, trace))
            for shadow in self._shadows:
                shadow.live(self._records[-1])

    def _totals(self, fit: Fit, trace: Sequence[object]) -> Array:
        """Return total reward and utilities of every price, and of the incumbent, on a trace, (prices + 1, 1 + m)."""
        found = np.zeros((len(PRICES) + 1, 1 + self.task.num_constraints))
        for k in range(len(found)):
            s = self._index(self.task.initial_state)
            for h, w in enumerate(trace):
                moved, place = self._moved(h, s, w), fit.places[h].get(s)
                if moved is None:
                    break
                usual = k == len(PRICES) or place is None
                a = int(self.task.incumbent.probabilities(h, self._states[s]).argmax()) if usual else -1
                a = a if usual else int(fit.actions[h][k, place])
                found[k] += moved[1][a]
                s = int(moved[0][a])
        return found

    # fits

    def _fitted(self) -> Fit:
        """Return the optima of the recent law of chance, by backward induction for all prices at once.

            V_h(s) = max_a Σ_w p_h(w|s) (r + λ Σ_c u_c + V_{h+1}(s')),   p_h(w|s) ∝ n_h(s, w) + 3 p̄_h(w)

        n_h(s, w) counts the recent traces with w at step h on which some actions lead to s; p̄_h is the law of the step
        over all of them. So each value of what is known in the morning, as part of the state, has a law of its own.
        """
        steps, places = [], [{self._index(self.task.initial_state): 0}]
        for h in range(self._H):
            values = {chance_key(trace[h]): trace[h] for trace in self._traces}
            number, here = {key: i for i, key in enumerate(values)}, places[h]
            weights = np.zeros((len(here), len(values)))
            for trace, reached in zip(self._traces, self._reached, strict=True):
                i = number[chance_key(trace[h])]
                weights[:, i] += SHRINKAGE / len(self._traces)
                weights[[here[s] for s in reached[h] if s in here], i] += 1
            comes = np.zeros((*weights.shape, self._A), dtype=np.int64)
            signals = np.zeros((*comes.shape, 1 + self.task.num_constraints))
            for s, row in here.items():
                for i, w in enumerate(values.values()):
                    moved = self._moved(h, s, w)
                    if moved is None:
                        weights[row, i] = 0.0
                    else:
                        comes[row, i], signals[row, i] = moved
            p = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
            following = np.unique(comes[p > 0])[:MOST_STATES]
            places.append({s: row for row, s in enumerate(following.tolist())})
            steps.append((p, comes, signals))
        V, actions = np.zeros((len(PRICES), len(self._states))), []
        for h in reversed(range(self._H)):
            p, comes, signals = steps[h]
            mean = np.einsum("sw,swag->sag", p, signals)
            Q = mean[..., 0] + PRICES[:, None, None] * mean[..., 1:].sum(axis=2)
            Q += np.einsum("sw,kswa->ksa", p, V[:, comes])
            actions.append(Q.argmax(axis=2))
            V = np.zeros_like(V)
            V[:, list(places[h])] = Q.max(axis=2)
        return Fit(places[: self._H], actions[::-1])

    def _policy(self, fit: Fit, k: int) -> Policy:
        """Return the policy of a price: a table where the states are listed."""
        choices = [{self._states[s]: int(a[k, row]) for s, row in rows.items()} for rows, a in zip(*fit, strict=True)]
        if not self.task.is_listed:
            return ChoicePolicy(self.task, choices)
        table = self.task.incumbent.table().copy()
        for h, rows in enumerate(choices):
            for s, a in rows.items():
                table[h, s] = np.eye(self._A)[a]
        return TablePolicy(table)

    def propose(self, goal: Goal) -> Candidate | None:
        """Fit again and return the best proposal by the records; None while there are too few traces.

        If it is a mixture of two prices, the first call returns the safer policy with weight 0, and the next call the
        other.
        """
        if self._second is not None:
            found, self._second = self._second, None
            return found
        if len(self._traces) < FIRST_FIT:
            return None
        b, self._fit = goal.utilities, self._fitted()
        records = np.array(self._records)
        if len(records) < FEW_RECORDS:
            records = np.array([self._totals(self._fit, trace) for trace in self._traces])
        means, scale = records.mean(axis=0), np.maximum(records[:, -1, 1:].mean(axis=0) - b, 0.0)
        if not self._shadows or (self._shadows[0].windows.limit != b).any():
            x = np.maximum(records[:, -1, 1:].min(axis=0), b)
            self._shadows = [Shadow(Windows(self.tested, b, x), self.task.least_totals, self.recent) for _ in MARGINS]
        for shadow, margin in zip(self._shadows, MARGINS, strict=True):
            shadow.target = best_pair(means[:-1], b + margin * scale)
        earned = [sum(shadow.earned) + (1e-9 if g == FIRST_MARGIN else 0.0) for g, shadow in enumerate(self._shadows)]
        i, j, p = self._shadows[int(np.argmax(earned))].target
        pair = [(i, {WEIGHT: 0.0}), (j, {WEIGHT: 1.0 - p})] if p < 1 else [(i, {})]
        first, *second = [
            Candidate(
                "", self._policy(self._fit, k), float(means[k, 0]), "ladder", float(PRICES[k]),
                statistics=replay_statistics(self.task, records[:, k]) | weight,
            )
            for k, weight in pair
        ]  # fmt: skip
        self._second = second[0] if second else None
        return first

    def policy_of(self, document: Document) -> Policy | None:
        """Return the policy of a document of `ChoicePolicy`."""
        if document.get("kind") != "choices":
            return None
        return ChoicePolicy(
            self.task, [{_state(s): a for s, a in rows} for rows in document["choices"]], document["name"]
        )


def best_pair(means: Array, aim: Array) -> tuple[int, int, float]:
    """Return (i, j, p): weights p and 1 − p for rows i and j of `means` (n, 1 + m), with the most reward at the aim.

    Row i reaches the aim by itself; if no row does, it is the row nearest to the aim.
    """
    above = means[:, 1:] - aim
    best, found = -np.inf, (int(above.min(axis=1).argmax()), 0, 1.0)
    for i in np.flatnonzero((above >= 0).all(axis=1)).tolist():
        for j in range(len(means)):
            lacks = above[j] < 0
            p = float(np.max(above[j][lacks] / (above[j] - above[i])[lacks])) if lacks.any() else 0.0
            if (value := p * means[i, 0] + (1 - p) * means[j, 0]) > best:
                best, found = value, (i, j, p) if 0 < p < 1 else (i, j, 1.0) if p else (j, j, 1.0)
    return found


class Shadow:
    """A simulated window budget, with the fit that one margin would have deployed."""

    def __init__(self, windows: Windows, least: Array, remembered: int) -> None:
        self.windows, self.least, self.target = windows, least, (0, 0, 1.0)
        self.earned: deque[float] = deque(maxlen=remembered)

    def live(self, record: Array) -> None:
        """Play a day: `record` (prices + 1, 1 + m), the incumbent last."""
        share = self.windows.share(self.least, "")
        day = self.windows.count
        self.windows.deploy(day, share * self.least + (1 - share) * self.windows.x, "")
        i, j, p = self.target
        made = share * (p * record[i] + (1 - p) * record[j]) + (1 - share) * record[-1]
        self.windows.settle(day, made[1:])
        self.earned.append(float(made[0]))


class ChoicePolicy(Policy):
    """One action in each known state of a step; elsewhere the incumbent acts."""

    def __init__(self, task: Task, choices: Sequence[dict[State, int]], name: str = "") -> None:
        self._task, self.choices, self.name, self._rows = task, choices, name, np.eye(task.num_actions or 0)

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""
        action = self.choices[h].get(state)
        return self._task.incumbent.probabilities(h, state) if action is None else self._rows[action]

    def document(self) -> Document:
        """Return the choices as JSON values."""
        return {"kind": "choices", "name": self.name, "choices": [list(map(list, one.items())) for one in self.choices]}


def _state(value: Any) -> Any:
    return tuple(map(_state, value)) if isinstance(value, list) else value
