"""The outcome of a run in one sentence; imports no figures, so that `episafe run` is fast."""

import math

import numpy as np

from episafe.simulation.record import Record, window

PROMISES = {
    "theorem": "with {confidence} confidence, if the assumptions hold",
    "window": "for every window of episodes, if the assumptions hold",
    "heuristic": "nothing is proved",
}


def promise(record: Record) -> str:
    """Return the confidence of the bounds of a record, in a few words."""
    text = PROMISES[str(record.settings.get("level", "heuristic"))]
    return text.format(confidence=percent(1 - float(record.settings.get("delta", 0.05))))


def percent(share: float) -> str:
    """Return a share in per cent; small ones with more digits, so that 0 % means none and 100 % means all."""
    if 0 < share < 0.005 or 0.995 < share < 1:
        return f"{100 * share:.2f} %"
    return f"{100 * share:.0f} %"


def verdict(record: Record) -> str:
    """Return the outcome of a run in one sentence."""
    K = len(record.reward_values)
    last, unit, names = window(K), record.unit("reward"), record.limit_names
    units = [record.unit(name) for name in names]
    kept = [one.say(float(b)) for one, b in zip(units, np.atleast_1d(record.threshold), strict=True)]
    limits = " and ".join(f"{name} {b}" for name, b in zip(names, kept, strict=True)) if len(names) > 1 else kept[0]
    if not record.is_exact:
        if record.utility_totals is None or record.reward_totals is None:
            return f"{K:,} episodes were played; exact values are unknown."
        means = np.atleast_1d(record.utility_totals[-last:].mean(axis=0)).tolist()
        found = ", ".join(
            f"{name} {one.raw(mean):.4g} (limit: {one.bound} {b})"
            for name, one, mean, b in zip(names, units, means, kept, strict=True)
        )
        return (
            f"The last {last:,} of {K:,} episodes had mean {found} and mean reward "
            f"{unit.say(float(record.reward_totals[-last:].mean()))}; exact values are unknown."
        )
    below = int(record.violating().sum())
    word = "Safe: by exact values none" if not below else f"Unsafe: by exact values {below:,}"
    were = "was" if below <= 1 else "were"
    start = float(record.settings.get("incumbent_reward", record.reward_values[0]))
    end = float(record.reward_values[-last:].mean())
    way = ""
    if math.isfinite(record.optimum) and end > start and record.optimum > start + 1e-9:
        way = f", {percent((end - start) / (record.optimum - start))} of the way to the optimum"
    moved = "fell" if end < start - 5e-4 * abs(start) else "rose" if end > start + 5e-4 * abs(start) else "stayed"
    change = (
        f"stayed at {unit.say(start)}"
        if moved == "stayed"
        else f"{moved} from {unit.raw(start):.4g} to {unit.say(end)}"
    )
    side = " or ".join(dict.fromkeys(one.beyond for one in units))
    return (
        f"{word} of the {K:,} deployed policies {were} {side} the limit{'s' if len(names) > 1 else ''} of {limits}; "
        f"expected reward {change}{way}."
    )
