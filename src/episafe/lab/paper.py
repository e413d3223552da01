"""The comparison of the paper: its environments and agents, by the rules of the text and of the released code."""

from collections.abc import Sequence

import numpy as np

from episafe.lab.sweep import Job, Sweep
from episafe.report.figures import mean_interval
from episafe.simulation.record import Record

ENVIRONMENTS = ("tabular", "streaming", "linear")
AGENTS: dict[str, tuple[str, dict[str, object]]] = {  # label: agent, options; constants are the published ones
    "OPSE (text)": ("opse", {}),
    "OPSE (released)": ("opse", {"variant": "released"}),
    "Ghosh et al. (text)": ("ghosh", {}),
    "Ghosh et al. (released)": ("ghosh", {"variant": "released"}),
    "DOPE": ("dope", {}),
    "SafeAgent": ("safe", {}),
    "Incumbent": ("incumbent", {}),
}
PUBLISHED = {  # read from the paper's figures after 10,000 episodes, where they can be read
    ("tabular", "OPSE", "regret"): 1646,
    ("streaming", "OPSE", "regret"): 2270,
    ("linear", "OPSE", "regret"): 2080,
    ("streaming", "Ghosh et al.", "violation"): 2701,
}


def paper_sweep(quick: bool) -> Sweep:
    """Return the paper's comparison: 10 problems of 10,000 episodes each, or 3 of 1,000 in the quick form.

    DOPE does not run on "linear", as in the paper.
    """
    num_seeds, num_episodes = (3, 1_000) if quick else (10, 10_000)
    jobs = [
        Job(env, agent, seed, num_episodes, (), tuple(options.items()), label)
        for seed in range(num_seeds)
        for env in ENVIRONMENTS
        for label, (agent, options) in AGENTS.items()
        if (label, env) != ("DOPE", "linear")
    ]
    return Sweep("The paper's comparison", tuple(jobs))


def published_table(records: Sequence[Record]) -> str:
    """Return regret and violation at the end of the runs, as published, by the text and by the released code.

    A Markdown table under a paragraph that says what it compares; means with half-widths of 95 % intervals.
    """
    names = list(dict.fromkeys(label.partition(" (")[0] for label in AGENTS))
    lengths = sorted({len(one.reward_values) for one in records})
    lines = [
        "Mean and half-width of a 95 % interval over problems, after "
        f"{' or '.join(f'{n:,}' for n in lengths)} episodes. "
        "Published values are after 10,000 episodes, read from the figures. "
        "All environments are those of the released code; *text* and *released* are the rules of the agent. "
        "DOPE, SafeAgent and Incumbent have one set of rules.",
        "",
        "| environment | agent | quantity | published | text, or the only rules | released |",
        "|---|---|---|---|---|---|",
    ]
    for env in ENVIRONMENTS:
        for name in names:
            for quantity in ("regret", "violation"):
                text = _ends(records, env, (name, f"{name} (text)"), quantity)
                released = _ends(records, env, (f"{name} (released)",), quantity)
                published = PUBLISHED.get((env, name, quantity), "–")
                lines.append(f"| {env} | {name} | {quantity} | {published} | {text} | {released} |")
    return "\n".join(lines) + "\n"


def _ends(records: Sequence[Record], env: str, labels: Sequence[str], quantity: str) -> str:
    """Return mean and half-width of the final regret or violation of one setting; "–" if it was not run."""
    found = [one for one in records if one.settings["env"] == env and one.settings["setting"] in labels]
    if not found:
        return "–"
    ends = [(one.regret() if quantity == "regret" else one.violation())[-1] for one in found]
    mean, half = map(float, mean_interval(np.array(ends)))
    return f"{_digits(mean)} ± {_digits(half)}"


def _digits(value: float) -> str:
    """Return a number with no decimals from 100 on, and with two digits below, so that only 0 reads 0."""
    return f"{value:.0f}" if abs(value) >= 100 or not np.isfinite(value) else f"{value:.2g}"
