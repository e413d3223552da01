"""The frontier figure: regret against violation, one curve an agent, one panel an environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from episafe.reports.paper_figures import save

STYLES = {
    "opse, tuned": ("#0072B2", "o", "OPSE, tuned shape"),
    "opse, published": ("#56B4E9", "s", "OPSE, published shape"),
    "ghosh, published": ("#D55E00", "^", "Ghosh et al. 2024"),
    "dope, published": ("#009E73", "D", "DOPE"),
}
SMALLEST = 0.01  # hard violation below which the axis is linear, so that 0 has a place


def write_frontier_figure(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw the points of `episafe.tools.frontier` into a PNG."""
    envs = list(dict.fromkeys(row["env"] for row in rows))
    drawn = Figure(figsize=(4.2 * len(envs), 4.8), layout="constrained")
    for axes, env in zip(drawn.subplots(1, len(envs), squeeze=False)[0], envs, strict=True):
        _draw(axes, env, [row for row in rows if row["env"] == env])
    problems, episodes = rows[0]["num_problems"], rows[0]["num_episodes"]
    levels = ", ".join(dict.fromkeys(row["level"] for row in rows))
    drawn.suptitle(
        "Regret against violation over one multiplier of the bonuses (the number at a point)\n"
        f"mean of {problems} fresh problems, {episodes:,} episodes, 95 % intervals; level: {levels}"
    )
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return save(drawn, path)


def _draw(axes: Axes, env: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for agent, (colour, marker, label) in STYLES.items():
        mine = [row for row in rows if row["agent"] == agent]
        x, y = [row["violation"] for row in mine], [row["regret"] for row in mine]
        errors = [row["regret_half_width"] for row in mine]
        axes.errorbar(x, y, errors, color=colour, marker=marker, label=label, lw=1.4, ms=5, elinewidth=0.8, capsize=2)
        for row in mine:
            axes.annotate(
                f"{row['multiplier']:g}", (row["violation"], row["regret"]), xytext=(4, 3),
                textcoords="offset points", fontsize=6.5, color=colour,
            )  # fmt: skip
    axes.set(title=env, xlabel="hard violation, total", ylabel="regret, total")
    axes.set_xscale("symlog", linthresh=SMALLEST)
    axes.set_yscale("symlog", linthresh=100)
    axes.set_xlim(left=-SMALLEST / 3)
    axes.grid(alpha=0.25)
