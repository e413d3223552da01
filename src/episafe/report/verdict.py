"""The outcome of a run in one sentence; imports no figures, so that `episafe run` is fast."""

import math

import numpy as np

from episafe.simulation.record import Record, window

PROMISES = {
    "theorem": "with {confidence} confidence, if the assumptions hold",
    "window": "for every window of episodes, if the assumptions hold",
    "heuristic": "nothing is proved",
}


def quantity(value: float, unit: str) -> str:
    """Return a number with four digits and its unit."""
    return f"{value:.4g} {unit}".strip()


def promise(record: Record) -> str:
    """Return what the bounds of a record are worth, in a few words."""
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
    last, unit = window(K), record.unit("reward")
    several = len(record.limit_names) > 1
    limits = " and ".join(
        (f"{name} " if several else "") + quantity(float(b), record.unit(name))
        for name, b in zip(record.limit_names, np.atleast_1d(record.threshold), strict=True)
    )
    if not record.is_exact:
        if record.utility_totals is None or record.reward_totals is None:
            return f"{K:,} episodes were played; exact values are unknown."
        means = ", ".join(f"{mean:.4g}" for mean in np.atleast_1d(record.utility_totals[-last:].mean(axis=0)))
        return (
            f"The last {last:,} of {K:,} episodes had mean {', '.join(record.limit_names)} {means} (limit {limits}) "
            f"and mean reward {quantity(float(record.reward_totals[-last:].mean()), unit)}; exact values are unknown."
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
    change = f"stayed at {start:.4g}" if moved == "stayed" else f"{moved} from {start:.4g} to {end:.4g}"
    return (
        f"{word} of the {K:,} deployed policies {were} below the limit{'s' if several else ''} of {limits}; "
        f"expected reward {change}{' ' + unit if unit else ''}{way}."
    )
