"""Monitors: tests of what a guarantee assumes, at any time, with a stated rate of false alarms.

| monitor | what it tests | false alarms | what to do after its alarm |
|---|---|---|---|
| incumbent | the incumbent's expected utility is at least threshold + slack | δ/3 | measure the slack again |
| bound | deployed plans reach, on average, the bounds that they were deployed on | δ/3 | look for drift or dependence |
| draw | components are drawn by the weights of their plan | δ/3 | deploy only what the session returns |
| drift | replayed totals of deployed plans reach the limit | one in 100 years of days | restart, or find what changed |
| range | total utilities lie between the stated least total and the horizon | 0 | correct the reports or the range |
| reward | rewards of a step lie in [0, 1]; does not halt | 0 | rescale the reward |
| replay | `move` and the trace give what happened; ends bounds from replays | 0 | correct `move` or the trace |
| support | chance takes only values of `support`; ends bounds from floors | 0 | extend `support`, begin again |
| log | every deployment is logged; does not halt | 0 | repair the disk or the server |

From one start of the tests to the next, a false alarm has probability at most δ, if episodes are independent given
their plan. Reports may be late, lost or in any order: a missing report counts as the best case for the claim.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from episafe.core.checks import TOLERANCE
from episafe.core.task import Constraint
from episafe.core.types import INCUMBENT, Array
from episafe.kernels.monitor import BETS, expect, outcome, raise_wealth, settle
from episafe.session.events import AlarmRaised

PERIOD = 36_500  # reports from one false alarm of the test for drift to the next, on average
SHIFT, SPREAD, MOST, REMEMBERED, FIRST = 1.2, 1.25, 3.0, 56, 14  # of the test for drift; see `Drift`
WINDOW = 512  # deployments from the oldest without a report; older ones always count as the best case
DRAW_ROWS = 6
REMEDIES = {
    "drift": "Conditions have changed: restart with recent data, or withdraw candidates that became worse.",
    "incumbent": "Measure the incumbent's slack again and state it with change(slack=…).",
    "bound": "Conditions may have changed, or episodes depend on each other. Withdraw candidates that became worse.",
    "draw": "In every episode, use the component that deploy() returned.",
    "range": "Correct the reports, or state another least_total in a new session.",
    "reward": "Rescale the reward to [0, 1] per step. Only proposals depend on it.",
    "replay": "Correct `move`, or report the true random inputs.",
    "support": "Bounds from floors are no longer valid. Extend `support` and begin a new session to use floors again.",
    "log": "Repair the disk or the server. These deployments cannot be reported.",
}


def alarm(monitor: str, text: str, halts: bool = True) -> AlarmRaised:
    """Return the alarm of a monitor: what it found, and what to do."""
    return AlarmRaised(monitor, f"{text}. {REMEDIES[monitor]}", halts)


class Monitors:
    """The tests that can raise a false alarm: incumbent, bound and draw.

    Args:
        constraints: the m limits; the incumbent is tested where its slack is known.
        ceiling: the largest total utility H; None if there is none, and only the draw is tested.
        delta: the probability of a false alarm of all tests together; 0 for no tests.
    """

    def __init__(self, constraints: Sequence[Constraint], ceiling: float | None, delta: float) -> None:
        self.names, self.delta, self.ceiling = [one.name for one in constraints], delta, ceiling
        self._waiting: dict[int, tuple[int, Array]] = {}  # place and claims (2m,) of a deployment without a report
        self.change(constraints)
        m = self.num_limits = len(constraints)
        self._starts = np.array([*range(2 * m + 1), 2 * m + DRAW_ROWS])  # incumbent, bound by limit; draw
        self._levels = np.log(np.array([3 * m] * (2 * m) + [3]) / delta) if delta else np.full(2 * m + 1, np.inf)
        self.restart()

    def restart(self) -> None:
        """Start all tests with their full δ; they are about later deployments."""
        rows = int(self._starts[-1])
        self._settled = np.zeros((rows, len(BETS)))
        self._logs = np.zeros((2 * WINDOW, rows, len(BETS)))
        self._waiting.clear()
        self._num_settled = self._num_places = 0  # places in `_logs`; those before the oldest waited for are settled
        self._best = np.zeros(len(self._levels))  # ln of the largest wealth by claim; it starts at 1
        self._sums = np.zeros((len(self._levels), 3))  # reports, ΣU, Σ claimed
        self._last_component = ""
        self._drift = Drift(self.num_limits)

    def replayed(self, total: Array) -> None:
        """Test the replayed total (m,) of a deployed plan, averaged over the draw of the component."""
        if self.delta:
            self._drift.see(total - self.thresholds, np.abs(self.thresholds))

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Test other limits from now on; deployments under way always count as the best case."""
        self.thresholds = np.array([one.threshold for one in constraints])
        self.stated = np.array([math.nan if one.slack is None else one.threshold + one.slack for one in constraints])
        self._waiting.clear()

    def deployed(self, deployment: int, component: str, weights: Mapping[str, float], bounds: Array) -> None:
        """Count a deployment as the best case; test the draw of its component."""
        if not self.delta:
            return
        m, gains = self.num_limits, [0.0] * int(self._starts[-1])
        claims = [math.nan] * (2 * m)
        if self.ceiling is not None:
            if component == INCUMBENT:
                claims[:m] = self.stated.tolist()
            if weights.get(INCUMBENT, 0.0) < 1:
                claims[m:] = bounds.tolist()
        gains[: 2 * m] = [0.0 if math.isnan(one) else -1.0 for one in claims]
        if len(weights) > 1:
            self._test_draw(gains, component, weights)
        if self._num_places == len(self._logs):
            self._shift()
        place, self._num_places = self._num_places, self._num_places + 1
        expect(self._logs, place, np.array(gains))
        if any(gains[: 2 * m]):
            self._waiting[deployment] = place, np.array(claims)
        self._evaluate(place)

    def _test_draw(self, gains: list[float], component: str, weights: Mapping[str, float]) -> None:
        """Bet on three events, both ways: the incumbent acts, the last component acts again, the heaviest acts."""
        row = 2 * self.num_limits
        self._sums[-1] += 1, component == INCUMBENT, weights.get(INCUMBENT, 0.0)
        for event in (INCUMBENT, self._last_component, max(weights, key=weights.__getitem__)):
            p = weights.get(event, 0.0)
            if 0 < p < 1:
                gains[row : row + 2] = ((1 - p) / p, -1.0) if component == event else (-1.0, p / (1 - p))
            row += 2
        self._last_component = component
        if weights.get(component, 0.0) <= 0:
            self._best[-1] = math.inf  # a component without weight acted

    def reported(self, deployment: int, utility: Array | None) -> None:
        """Put the outcome (m,) in the place of the best case; None if it will never be known."""
        found = self._waiting.pop(deployment, None)
        if found is not None and utility is not None:
            place, claims = found
            outcome(self._logs, place, claims, utility, float(self.ceiling or 0.0), TOLERANCE, self._sums)
            self._evaluate(place)

    def _evaluate(self, changed: int) -> None:
        """Raise the largest wealths; settle what lies before the oldest deployment that is waited for."""
        begin, end = self._num_settled, self._num_places
        raise_wealth(self._settled, self._logs, begin, end, changed, self._starts, self._best)
        oldest = next(iter(self._waiting.values()))[0] if self._waiting else end
        if end - oldest > WINDOW:
            oldest = end - WINDOW
            self._waiting = {k: one for k, one in self._waiting.items() if one[0] >= oldest}
        if oldest > begin:
            settle(self._settled, self._logs, begin, oldest)
            self._num_settled = oldest

    def _shift(self) -> None:
        """Free memory in `_logs`: drop what is settled."""
        count, used = self._num_settled, self._num_places - self._num_settled
        self._logs[:used] = self._logs[count : count + used].copy()
        self._waiting = {k: (place - count, claims) for k, (place, claims) in self._waiting.items()}
        self._num_settled, self._num_places = 0, used

    def alarms(self) -> list[AlarmRaised]:
        """Return the alarms that the tests have raised since they started."""
        found = [self._alarm(c) for c in (self._best >= self._levels).nonzero()[0].tolist()]
        for c in (self._drift.sums >= PERIOD).nonzero()[0].tolist():
            found.append(alarm("drift", f"{self.names[c]}: replayed totals of deployed plans fell below the limit"))
        return found

    def _alarm(self, claim: int) -> AlarmRaised:
        m, (number, seen, stated) = self.num_limits, self._sums[claim]
        if claim == 2 * m:
            weighed = f"but the weights imply {stated:.4g}"
            return alarm("draw", f"the incumbent acted in {seen:.0f} of {number:.0f} mixtures, {weighed}")
        monitor, limit = ("incumbent" if claim < m else "bound"), self.names[claim % m]
        whose = "the incumbent" if claim < m else "plans that passed the check"
        means = f"{seen / max(number, 1):.4g} on average in {number:.0f} episodes, not {stated / max(number, 1):.4g}"
        return alarm(monitor, f"{limit}: {whose} reached {means}")

    def figures(self) -> dict[str, dict[str, float]]:
        """Return, for each test, the reports, the means seen and claimed, and the false-alarm rate."""
        limits = self.names if self.num_limits > 1 else [""]
        tests = [f"{test} {name}".strip() for test in ("incumbent", "bound") for name in limits] + ["draw"]
        return {
            name: {
                "reports": n,
                "mean": seen / max(n, 1),
                "claimed": stated / max(n, 1),
                "false_alarm": math.exp(-level),
            }
            for name, (n, seen, stated), level in zip(tests, self._sums.tolist(), self._levels.tolist(), strict=True)
        }


class Drift:
    """A quick test of one limit each: has the mean of replayed totals fallen below it? (Shiryaev, Roberts)

        R_t = (1 + R_{t−1}) exp(κ z_t − κ²/2),   z_t = min((b − u_t)/(1.25 s_t), 3),   κ = 1.2

    s_t is the standard deviation by differences of the last 56 totals, which a jump of the mean hardly moves. If totals
    are normal with mean b and that deviation, R_t − t has mean at most 0, so alarms at R ≥ 36,500 are that rare. For
    other laws the rate is a heuristic.
    """

    def __init__(self, num_limits: int) -> None:
        self.sums, self._last = np.zeros(num_limits), np.full(num_limits, np.nan)
        self._differences: deque[Array] = deque(maxlen=REMEMBERED)

    def see(self, surplus: Array, scale: Array) -> None:
        """Add a day: u − b (m,), and the size of the limits, of which a standard deviation is at least 0.5 %."""
        if len(self._differences) >= FIRST:
            spread = SPREAD * np.sqrt(np.mean(self._differences, axis=0) / 2)
            z = np.minimum(-surplus / np.maximum(spread, 0.005 * scale), MOST)
            grown = (1 + self.sums) * np.exp(SHIFT * z - SHIFT**2 / 2)
            self.sums = np.where(self.sums >= PERIOD, self.sums, grown)  # an alarm stays
        if not np.isnan(self._last).any():
            self._differences.append((surplus - self._last) ** 2)
        self._last = surplus


def range_alarms(total: Array, rewards: Array | None, least: Array, ceiling: float | None) -> list[AlarmRaised]:
    """Return the alarms of a report whose totals or rewards lie outside their ranges; they cannot be false."""
    found = []
    above = math.inf if ceiling is None else ceiling
    outside = (total < least - TOLERANCE) | (total > above + TOLERANCE)
    if outside.any():
        c = int(np.argmax(outside))
        where = f"outside [{least[c]:g}, {above:g}]"
        found.append(alarm("range", f"an episode has a total utility of {total[c]:.6g}, {where}"))
    if rewards is not None and ((rewards < -TOLERANCE) | (rewards > 1 + TOLERANCE)).any():
        worst = rewards[int(np.argmax(np.abs(rewards - 0.5)))]
        found.append(alarm("reward", f"a step has a reward of {worst:.6g}, outside [0, 1]", halts=False))
    return found
