"""Draw the README's figure, light and dark: five runs of SafeAgent on the inventory problem, one line per run.

python benchmarks/readme_figure.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import episafe as es

OUT = Path(__file__).parent.parent / "docs" / "figures"
EPISODES, SEEDS, DAYS = 300, range(5), 14
THEMES = {
    "inventory": ("#ffffff", "#1f2328", "#0072B2", "#B34700"),
    "inventory-dark": ("#131416", "#d5d7da", "#56B4E9", "#FF9E5E"),
}


def simulate() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each run the share of the way to the optimum, and the share of demand served in expectation, in %."""
    runs = []
    for seed in SEEDS:
        shop = es.make("inventory", seed)
        record = es.run(shop, es.SafeAgent(shop), EPISODES, seed)
        before = shop.evaluate(shop.task.incumbent)[0]
        gained = (record.reward_values - before) / (shop.optimal_value() - before)
        runs.append((100 * gained, 100 * record.utility_values / DAYS))
    return runs


def draw(runs: list[tuple[np.ndarray, np.ndarray]], name: str) -> None:
    """Draw both panels in the colours of a theme."""
    back, ink, line, limit = THEMES[name]
    colours = {key: ink for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")}
    with plt.rc_context({"font.size": 11, "axes.titlesize": 12, "axes.titleweight": "bold", **colours}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained", facecolor=back)
        episodes = np.arange(1, EPISODES + 1)
        for gained, served in runs:
            left.plot(episodes, gained, color=line, linewidth=1.3)
            right.plot(episodes, served, color=line, linewidth=1.3)
        left.axhline(100, color=ink, linestyle="--", linewidth=1)
        left.text(EPISODES, 101.5, "best policy that keeps the limit", ha="right", va="bottom")
        left.axhline(0, color=ink, linestyle=":", linewidth=1)
        left.text(EPISODES, 2, "incumbent", ha="right", va="bottom")
        left.set(title="The profit rises …", xlabel="episode (14 days each)", ylabel="% of the way to the optimum")
        left.set(ylim=(-4, 114))
        right.axhspan(86, 90, color=limit, alpha=0.18, linewidth=0)
        right.axhline(90, color=limit, linestyle="--", linewidth=1.3)
        right.text(EPISODES, 89.6, "limit: 90 % of demand served", ha="right", va="top", color=limit)
        right.set(title="… and the limit is kept", xlabel="episode (14 days each)")
        right.set(ylabel="% of demand served, expected", ylim=(88, 100))
        for axes in (left, right):
            axes.set_facecolor(back)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.2)
            axes.margins(x=0.01)
        figure.savefig(OUT / f"{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    found = simulate()
    for theme in THEMES:
        draw(found, theme)
