"""The pictures of one run: what came of it, why it was allowed, who acted, what changed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np

from episafe.reports.pictures import (
    BLUE,
    GREEN,
    GREY,
    RED,
    Band,
    CellMap,
    Dots,
    Guide,
    Mark,
    Note,
    Picture,
    Polyline,
    Scale,
    Ticks,
    Zone,
)
from episafe.reports.record_groups import is_bandit
from episafe.runs.record import Record
from episafe.stats import normal_interval
from episafe.types import Amount, Array, amounts

NUM_BLOCKS, LEAST = 24, 10  # blocks of episodes that observed means are drawn of, and fewest episodes of one
NUM_SHARES = 40  # blocks of the picture of who acted
GRID = 400  # points of a line, and dots of a kind; more cannot be seen
WIDTH, HEIGHT = 480, 230  # of these pictures: there are two in a row
EDGE = 0.02  # of an axis, from its foot to what is drawn at the edge
LAST = 0.1  # share of the episodes that "at the end" means
MOST_ACTIONS, MOST_STATES, SEEN = 4, 30, 5  # maps drawn, rows of one, visits that a cell needs
MOST_NAMES = 11  # of states, beside the rows of a map: more would be written over each other
PALE = 0.35
MIXED = {  # of one constraint, and of several
    True: "A mixture has the largest weight of the new policy that its bound bears, so the bound meets the threshold.",
    False: "A mixture has the largest weight of the new policy that its bounds bear, so the tightest one meets its "
    "threshold.",
}
REFUSED = "refused: the incumbent was deployed"
NOT_SURE = "the incumbent’s own, while it was deployed"  # a bandit is sure enough of its incumbent before it proposes
MORE_OR_LESS = (
    "Blue: learned policies take the action more often than the incumbent; grey: the incumbent does. Full colour: "
    f"always against never; a frame alone: no difference; no frame: seen fewer than {SEEN} times."
)


def unit(record: Record) -> str:
    """What the record's rows are."""
    if is_bandit(record.settings):
        return "round"
    return "deployment" if "live" in record.settings else "episode"


def blocks(totals: Array) -> Array:
    """Means of consecutive episodes, (3, n): the middle of each block, its mean, and the half-width of the mean's 95 %
    interval (normal); NaN where fewer than two of a block are known."""
    count = max(1, min(NUM_BLOCKS, len(totals) // LEAST))
    edges = np.linspace(0, len(totals), count + 1).round().astype(int)
    rows = []
    for low, high in pairwise(edges):
        known = totals[low:high][np.isfinite(totals[low:high])]
        mean, error = normal_interval(known) if len(known) > 1 else (math.nan, math.nan)
        rows.append(((low + high + 1) / 2, mean, error))
    return np.array(rows, dtype=np.float64).T


def incumbent_values(record: Record) -> tuple[float, float]:
    """Expected reward and utility of the incumbent; where they are not known, the means of its episodes, if any."""
    if _is_said(record):
        return float(record.settings["incumbent_reward"]), float(record.settings["incumbent_utility"])
    alone = record.sources == "safe"
    if record.is_exact:
        known = record.reward_values[alone], record.utility_values[alone]
    else:
        acted = record.incumbent_acted()
        known = totals(record, 0)[acted], totals(record, 1)[acted]
    reward, utility = (float(np.nanmean(of)) if np.isfinite(of).any() else math.nan for of in known)
    return reward, utility


def observed_rewards(record: Record) -> Array:
    """The rewards that the incumbent's mean is of, and its error; none where its expected reward is known."""
    if record.is_exact or _is_said(record):
        return np.empty(0)
    of = totals(record, 0)[record.incumbent_acted()]
    return of[np.isfinite(of)]


def _is_said(record: Record) -> bool:
    return all(record.settings.get(f"incumbent_{signal}") is not None for signal in ("reward", "utility"))


def totals(record: Record, signal: int) -> Array:
    """Rewards (0) or utilities (1) that were collected; NaN where nobody knows."""
    found = (record.reward_totals, record.utility_totals)[signal]
    return np.full(len(record.sources), math.nan) if found is None else found


def pictures(
    record: Record, halts: Sequence[tuple[int, str]] = (), earlier: Sequence[tuple[int, Amount]] = ()
) -> dict[str, list[Picture]]:
    """Pictures of a run, by what they are about, in the order of a report; none that would show nothing.

    Args:
        record: of the run.
        halts: the episodes after which only the incumbent acted, and why.
        earlier: thresholds that a person changed, and the episode from which on they held no more.
    """
    each = by_constraint(record)
    before = [threshold_steps(earlier, c) for c, _ in enumerate(each)]
    found = {
        "What came of it": [
            reward_picture(each[0]),
            *(utility_picture(one, halts, steps) for one, steps in zip(each, before, strict=True)),
        ],
        "Why it was allowed": [
            bound_picture(one, steps) for one, steps in zip(each, before, strict=True) if _has_bounds(one)
        ],
        "Who acted": [shares_picture(record)],
    }
    return {title: drawn for title, drawn in found.items() if drawn}


def threshold_steps(earlier: Sequence[tuple[int, Amount]], c: int) -> list[Polyline]:
    """Thresholds of constraint c before they were changed, as one line."""
    if not earlier:
        return []
    ends = np.array([0.0, *(float(end) for end, _ in earlier)])
    heights = np.array([amounts(b)[c] for _, b in earlier])
    x, y = np.repeat(ends, 2)[1:-1], np.repeat(heights, 2)
    return [Polyline(x, y, RED, "threshold, before it was changed", "dot", 1.5)]


def by_constraint(record: Record) -> list[Record]:
    """The record as each of its constraints sees it."""
    found = []
    for c in range(max(len(record.constraint_names), 1)):
        kept = record.settings.get(f"incumbent_utility_{c + 1}")
        one = record.of_constraint(c)
        found.append(one if kept is None else one.noting(incumbent_utility=kept))
    return found


def _of(record: Record) -> str:
    """The constraint that is spoken of, where there are several."""
    return f": {record.settings['constraint']}" if "constraint" in record.settings else ""


def raw_cost(record: Record, total: float) -> tuple[float, float] | None:
    """A total utility as the cost that it stands for, and the limit, in the environment's units; None without costs.

    Utility is 1 − (cost − low)/(high − low) a step, and the threshold b is the limit c, so that the cost is
    c + (b − total)(high − low).
    """
    said = record.settings
    end = f"_{said['constraint']}" if f"signal_{said.get('constraint')}" in said else ""
    if said.get(f"signal{end}") != "cost":
        return None
    limit, low, high = (float(said[f"{key}{end}"]) for key in ("limit", "cost_low", "cost_high"))
    return limit + (record.threshold - total) * (high - low), limit


def _has_bounds(record: Record) -> bool:
    return bool(np.isfinite(record.utility_bounds).any() and math.isfinite(record.threshold))


def reward_picture(record: Record) -> Picture:
    """The reward, against the incumbent and the optimum."""
    marks, values = _signal(record, 0)
    levels = [Guide(incumbent_values(record)[0], GREY, "incumbent")]
    if math.isfinite(record.optimum):
        levels.append(Guide(record.optimum, GREEN, "optimum"))
    return _outcome("Reward", record, marks, values, levels)


def utility_picture(record: Record, halts: Sequence[tuple[int, str]], earlier: Sequence[Polyline] = ()) -> Picture:
    """The utility that must be kept: below the threshold is the unsafe zone."""
    marks, values = _signal(record, 1)
    marks, values = [*marks, *earlier], np.concatenate([values, *(steps.y for steps in earlier)])
    levels = [Guide(incumbent_values(record)[1], GREY, "incumbent"), Guide(record.threshold, RED, "threshold")]
    if halts:
        marks = [*marks, Ticks(np.array([k + 1.0 for k, _ in halts]), RED, "alarm, or halt by a person")]
    what = "Utility, 1 − cost a step" if raw_cost(record, record.threshold) else "Utility"
    return _outcome(f"{what}, which must be kept{_of(record)}", record, marks, values, levels, record.threshold)


def _signal(record: Record, signal: int) -> tuple[list[Mark], Array]:
    """Marks of rewards (0) or utilities (1), and all values that they show."""
    if record.is_exact:
        exact = (record.reward_values, record.utility_values)[signal]
        at = np.unique(np.linspace(0, len(exact) - 1, GRID).round().astype(int))
        return [Polyline(at + 1.0, exact[at], BLUE, "expected value of what was deployed", width=2)], exact[at]
    x, mean, half_width = blocks(totals(record, signal))
    band = Band(x, mean - half_width, mean + half_width, BLUE, "95 % interval")
    line = Polyline(x, mean, BLUE, "mean of what was observed", width=2)
    return [band, line, Dots(x, mean, BLUE)], np.concatenate([mean - half_width, mean + half_width])


def _outcome(
    title: str, record: Record, marks: list[Mark], values: Array, levels: list[Guide], least: float | None = None
) -> Picture:
    levels = [level for level in levels if math.isfinite(level.y)]
    drawn = np.concatenate([values[np.isfinite(values)], [level.y for level in levels]])
    low, high = (float(drawn.min()), float(drawn.max())) if len(drawn) else (0.0, 1.0)
    room = 0.08 * (high - low) or max(0.08 * abs(high), 0.1)
    low, high = low - (2.5 if least is not None else 1) * room, high + room
    zone: list[Mark] = [] if least is None or not math.isfinite(least) else [Zone(low, least, RED, "unsafe")]
    of = "expected" if record.is_exact else "mean"
    y = Scale.linear(f"{of} total", low, high)  # of what is counted across
    return Picture(title, _episodes(record), y, [*zone, *marks], width=WIDTH, height=HEIGHT, levels=levels)


def bound_picture(record: Record, earlier: Sequence[Polyline] = ()) -> Picture:
    """The lower bound of every plan against the threshold: what was refused, and what was allowed."""
    new = np.flatnonzero(np.r_[True, np.diff(record.plan_ids) != 0])
    allowed = record.sources[new] != "safe"
    caption = MIXED[not _of(record)] if record.mixed().any() else ""
    refused = NOT_SURE if is_bandit(record.settings) else REFUSED
    at, across = (new + 1).astype(np.float64), _episodes(record)
    b, bounds = record.threshold, record.utility_bounds[new]
    drawn = bounds_picture(at, bounds, allowed, b, across, caption, _of(record), refused)
    return replace(drawn, marks=[*drawn.marks, *earlier])


def bounds_picture(
    x: Array, bounds: Array, allowed: Any, b: float, across: Scale, caption: str, of: str, refused: str
) -> Picture:
    """Bounds of plans that begin at x, which of them were allowed, what the others were, and the threshold b."""
    known = np.isfinite(bounds)
    x, bounds, allowed = x[known], bounds[known], allowed[known]
    high, low = max(float(bounds.max()), b + 0.05 * abs(b)), min(float(np.quantile(bounds, 0.02)), b)
    low = max(low, b - 4 * max(high - b, 1e-3))
    room = 0.08 * (high - low) or 0.1
    first = np.flatnonzero(allowed)[:1]
    foot = min([b, *bounds[first]]) - max(room, 0.2 * (high - b))  # where the words on the first one stand
    y = Scale.linear("lower bound on utility", min(low - room, foot), high + 2 * room)
    edge = y.low + EDGE * (y.high - y.low)
    if float(bounds.min()) < edge:
        caption = f"Bounds further below are drawn at the edge. {caption}".strip()
    bounds = np.maximum(bounds, edge)
    marks: list[Mark] = []
    for which, colour, name in ((~allowed, GREY, refused), (allowed, BLUE, "allowed")):
        at = np.flatnonzero(which)
        if len(at):
            at = at[np.unique(np.linspace(0, len(at) - 1, GRID).round().astype(int))]
            marks.append(Dots(x[at], bounds[at], colour, name))
    if len(first):
        words = f"first allowed: {across.title} {x[first[0]]:,.0f}"
        marks.append(Note(x[first[0]], bounds[first[0]], words, BLUE, line=b))
    levels = [Guide(b, RED, "threshold")]
    return Picture(
        f"Lower bound of each plan{of}", across, y, marks, caption=caption, width=WIDTH, height=HEIGHT, levels=levels
    )


def acting_shares(record: Record) -> dict[str, Any]:
    """Which episodes were whose, by the name of it: the incumbent's or learned, alone or drawn from a mixture."""
    acted, mixed = record.incumbent_acted(), record.mixed()
    return {
        "incumbent, alone": acted & ~mixed,
        "incumbent, drawn from a mixture": acted & mixed,
        "learned, drawn from a mixture": ~acted & mixed,
        "learned, alone": ~acted & ~mixed,
    }


def shares_picture(record: Record) -> Picture:
    """Who acted, as shares of blocks of episodes, one on the other."""
    what = unit(record)
    return stacked_picture(f"Share of {what}s", f"% of {what}s", acting_shares(record), _episodes(record))


def stacked_picture(title: str, counted: str, whose: Mapping[str, Any], across: Scale) -> Picture:
    """Whose each episode was, (K,) by name, as shares of blocks of episodes, one on the other from below."""
    K = len(next(iter(whose.values())))
    edges = np.unique(np.linspace(0, K, min(NUM_SHARES, K) + 1).round().astype(int))
    x = np.repeat(edges, 2)[1:-1].astype(np.float64)
    below, marks = np.zeros(len(edges) - 1), list[Mark]()
    for name, theirs in whose.items():
        if theirs.any():
            share = 100 * np.add.reduceat(theirs.astype(np.float64), edges[:-1]) / np.diff(edges)
            colour = GREY if name.startswith("incumbent") else BLUE
            opacity = PALE if "mixture" in name else 0.85
            marks.append(Band(x, np.repeat(below, 2), np.repeat(below + share, 2), colour, name, opacity))
            below = below + share
    return Picture(title, across, Scale.linear(counted, 0.0, 100.0), marks, width=WIDTH, height=HEIGHT)


def _episodes(record: Record) -> Scale:
    return Scale.linear(unit(record), 0.0, float(len(record.sources)), 6)


def change_pictures(change: Array, states: Sequence[str]) -> list[Picture]:
    """Maps of learned minus incumbent probabilities, (H, S, A), NaN where nothing is known: one an action, those that
    changed most; rows are states, columns steps."""
    H, S, _ = change.shape
    size = np.nansum(np.abs(change), axis=(0, 1))
    shown = sorted(np.argsort(-size, kind="stable")[:MOST_ACTIONS].tolist())
    x = Scale("step", 0.0, H, tuple((h + 0.5, str(h + 1)) for h in range(0, H, max(1, -(-H // 12)))))
    y = Scale(
        "state", 0.0, S, tuple((s + 0.5, states[s]) for s in range(0, S, max(1, -(-S // MOST_NAMES)))), ruled=False
    )
    found = []
    for a in (a for a in shown if size[a] > 0):
        named = [[f"state {states[s]}, step {h + 1}: {change[h, s, a]:+.2f}" for h in range(H)] for s in range(S)]
        cells, title = CellMap(change[:, :, a].T, named), f"Action {a}: probability, learned minus incumbent"
        found.append(Picture(title, x, y, [cells], width=WIDTH, height=HEIGHT))
    return found


def observed_change(
    episodes: Sequence[tuple[Any, Any] | None], incumbent_acted: Sequence[bool], table: Array | None
) -> tuple[Array, list[str]] | None:
    """How often each action was taken by learned policies in the last episodes of theirs, minus the same of the
    incumbent, or minus its `table` where states are numbers; and the states, those that were seen most.

    None where no state was seen often enough by both.
    """
    known = [(path, acted) for path, acted in zip(episodes, incumbent_acted, strict=True) if path is not None]
    last = max(200, int(LAST * len(known)))
    learned = _counts([path for path, acted in known if not acted][-last:])
    before = _counts([path for path, acted in known if acted][-last:])
    if not learned or not (before or table is not None):
        return None
    H = max(h for h, _, _ in learned) + 1
    A = max(a for _, _, a in [*learned, *before]) + 1 if table is None else table.shape[2]
    visits: dict[Any, float] = {}
    for (_, state, _), count in learned.items():
        visits[state] = visits.get(state, 0) + count
    states = sorted(sorted(visits, key=lambda s: -visits[s])[:MOST_STATES], key=_order)
    change = np.full((H, len(states), A), math.nan)
    for i, state in enumerate(states):
        for h in range(H):
            now, then = _row(learned, h, state, A), _row(before, h, state, A)
            if table is not None:
                then = table[h, state]
            if now is not None and then is not None:
                change[h, i] = now - then
    known = np.isfinite(change).any(axis=(0, 2))
    names = [_named(state) for state, is_known in zip(states, known, strict=True) if is_known]
    return (change[:, known], names) if names else None


def _counts(paths: Sequence[tuple[Any, Any]]) -> Mapping[tuple[int, Any, int], float]:
    found: dict[tuple[int, Any, int], float] = {}
    for states, actions in paths:
        for h, action in enumerate(np.asarray(actions).tolist()):
            at = (h, _key(states[h]), int(action))
            found[at] = found.get(at, 0) + 1
    return found


def _key(state: Any) -> Any:
    plain = np.asarray(state).tolist() if isinstance(state, np.ndarray | np.generic) else state
    return tuple(plain) if isinstance(plain, list) else plain


def _named(state: Any) -> str:
    """A state in words: a number, a tuple, or what is outside the environment (ended)."""
    return state.name.lower() if isinstance(state, Enum) else str(state)


def _order(state: Any) -> Any:
    return (0, state, "") if isinstance(state, int | float) else (1, 0, str(state))


def _row(counts: Mapping[tuple[int, Any, int], float], h: int, state: Any, A: int) -> Array | None:
    row = np.array([counts.get((h, state, a), 0.0) for a in range(A)])
    return row / row.sum() if row.sum() >= SEEN else None
