"""The comparison of the paper: its environments and agents, by the rules of the text and of the released code."""

from episafe.lab.sweep import Job, Sweep

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
SLOW = {("DOPE", "linear"): {"replan": "doubling:0.3"}}  # S = 100: plan when a count has grown by the factor e^0.3


def paper_sweep(quick: bool) -> Sweep:
    """Return the paper's comparison: 10 problems of 10,000 episodes each, or 3 of 1,000 in the quick form."""
    num_seeds, num_episodes = (3, 1_000) if quick else (10, 10_000)
    jobs = [
        Job(env, agent, seed, num_episodes, (), tuple({**options, **SLOW.get((label, env), {})}.items()), label)
        for seed in range(num_seeds)
        for env in ENVIRONMENTS
        for label, (agent, options) in AGENTS.items()
    ]
    return Sweep("The paper's comparison", tuple(jobs))
