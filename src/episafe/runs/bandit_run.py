"""`es.bandits.run`: the same loop over the world of a bandit, and rounds in place of episodes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from episafe.checks import as_whole
from episafe.deployment.journal_folder import holds_journal, read_head
from episafe.runs.kept_run import begin, resume
from episafe.runs.record import Record
from episafe.runs.run import Simulation


def run(
    bandit: Any,
    agent: Any,
    num_rounds: int = 10_000,
    seed: int = 0,
    *,
    first_round: int = 0,
    monitors: Any = None,
    folder: str | Path | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Run `agent` on `bandit`; the same seed gives the same record, bit for bit.

    Args:
        bandit: the world, known to this loop and not to the agent.
        agent: plans before each round and learns after it.
        num_rounds: rounds to play.
        seed: of the run's luck.
        first_round: where to begin: an agent restored after k rounds goes on with first_round=k as if never stopped.
        monitors: `es.bandits.Monitors(agent.task)` to watch the run, and to halt it where an alarm asks for it; the
            loop is not compiled then.
        folder: where to keep a journal, an audit trail and, at the end, the record. A run that was killed is taken up
            by the same call with an agent built alike, or by `es.resume`, and ends with the same record.
        on_progress: called now and then with the number of rounds done.

    Example:
        >>> import episafe as es
        >>> bandit = es.bandits.make("finite", seed=0)
        >>> record = es.bandits.run(bandit, es.bandits.OPLBSP(bandit.task, num_rounds=100), num_rounds=100)
        >>> float(record.violation()[-1])
        0.0
    """
    require_bandit(bandit, agent)
    num_rounds, seed = as_whole("num_rounds", num_rounds, 1), as_whole("seed", seed, 0)
    if folder is not None and holds_journal(Path(folder)):
        head = read_head(Path(folder))
        if (head["seed"], head["first_round"]) != (seed, first_round):
            raise ValueError(f"{folder} holds another run: seed or first round differ; choose another folder")
        return resume(folder, num_rounds, cmdp=bandit, agent=agent, on_progress=on_progress)
    simulation = Simulation(bandit, agent, num_rounds, seed, monitors, first_round)
    return simulation.play(on_progress) if folder is None else begin(simulation, folder, on_progress)


def require_bandit(bandit: Any, agent: Any) -> None:
    """A bandit with its parameters, and an agent that is built."""
    if not hasattr(bandit, "theta_r"):
        hint = ": a task does not hold θ, which a run needs" if hasattr(bandit, "arms") else ""
        raise TypeError(f"run needs a LinearBandit, got {type(bandit).__name__}{hint}")
    if isinstance(agent, type):
        raise TypeError(f"run needs an agent, got the class {agent.__name__}: build it from bandit.task")
    if not hasattr(agent, "plan") or not hasattr(agent, "task"):
        raise TypeError(f"run needs an agent such as OPLBSP(bandit.task, …), got {type(agent).__name__}")
