"""Draw the README's figure: five runs on the inventory problem, one line per run.

python benchmarks/readme_figure.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import episafe as es

OUT = Path(__file__).parent.parent / "docs" / "figures" / "inventory.png"
EPISODES, SEEDS = 300, range(5)


def main() -> None:
    """Run, draw and save."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for seed in SEEDS:
        shop = es.make("inventory", seed)
        record = es.run(shop, es.SafeAgent(shop), EPISODES, seed)
        before, episodes = shop.evaluate(shop.task.incumbent)[0], np.arange(1, EPISODES + 1)
        gained = (record.reward_values - before) / (shop.optimal_value() - before)
        left.plot(episodes, 100 * gained, color="#0072B2", linewidth=1.2)
        right.plot(episodes, 100 * record.utility_values / 14, color="#0072B2", linewidth=1.2)
    left.axhline(100, color="#009E73", linestyle="--", label="best policy that keeps the limit")
    left.axhline(0, color="#6B6B6B", linestyle=":", label="incumbent")
    left.set(title="Reward of the deployed policy", xlabel="episode", ylabel="% of the way to the optimum")
    left.legend(loc="lower right", frameon=False)
    right.axhspan(88, 90, color="#D55E00", alpha=0.15)
    right.axhline(90, color="#D55E00", linestyle="--", label="limit: 90 %")
    right.set(title="Demand served, expected", xlabel="episode", ylabel="% of demand", ylim=(88, 100.5))
    right.legend(loc="upper right", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.suptitle("A shop that orders every morning; one line per run")
    figure.savefig(OUT, dpi=120)


if __name__ == "__main__":
    main()
