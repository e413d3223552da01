"""`es.open` and `es.audit`: any agent with a journal."""

from pathlib import Path
from typing import Any

from episafe.agents.base import Agent
from episafe.deployment.audit import Audit
from episafe.deployment.audit import audit as audit_with
from episafe.deployment.session import Opened, Sync
from episafe.monitors import Monitors


def open(folder: str | Path, agent: Any, *, sync: Sync = "each", false_alarm: float = 0.01) -> Any:
    """Keep the plans and episodes of an agent in `folder`, or go on with those that are there.

    Args:
        folder: of the journal; made if there is none. One process may have it open.
        agent: new, built as it was when the journal was begun: what the folder holds is learned again first. Any
            agent, of bandits too.
        sync: "each": plans and reports are on the disk when `plan` and `learn` return. "plans": reports survive the
            process at once, and a loss of power from the next plan on.
        false_alarm: the probability that the monitors, `es.Monitors` or those of bandits, ever raise a false alarm; 0
            for no monitors. After an alarm that halts only the incumbent is deployed, until a person calls
            `resume_exploring(reason)`.

    Returns:
        An object with `plan`, `learn`, `status`, `halt`, `resume_exploring`, `close`; a context manager. `plan` and
        `learn` are called as those of the agent, with `episode_id=` for a name of yours that is taken once.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming")
        >>> with es.open("shop", agent=es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))) as live:  # doctest: +SKIP
        ...     plan = live.plan()
        ...     live.learn(es.Episode(states, actions), plan_id=plan.id, episode_id="order 1")
        ...     print(live.status().num_missing)
    """
    from episafe.agents.bandits.base import BanditAgent
    from episafe.deployment.bandit_session import OpenedBandit
    from episafe.monitors import round_monitors as bandits

    if isinstance(agent, Agent):
        return Opened(Path(folder), agent, sync, Monitors(agent.task, false_alarm) if false_alarm else None)
    if isinstance(agent, BanditAgent):
        watching = bandits.Monitors(agent.task, false_alarm) if false_alarm else None
        return OpenedBandit(Path(folder), agent, sync, watching)
    hint = ": build it first" if isinstance(agent, type) else ""
    raise TypeError(f"open needs an agent, got {agent!r}{hint}")


def audit(folder: str | Path, agent: Any = None, head: str | None = None) -> Audit:
    """Verify the audit trail of a journal, and recompute every certificate from what was recorded.

    Args:
        folder: of a journal; nothing in it is changed.
        agent: a new one, built as the first was; needed only where the journal cannot build it: bandits, tasks by
            functions, agents of your own.
        head: the hash of the last line as it was kept elsewhere; it must still be in the trail.
    """
    from episafe.agents.bandits.base import BanditAgent
    from episafe.deployment.bandit_session import OpenedBandit

    return audit_with(folder, agent, head, opened=OpenedBandit if isinstance(agent, BanditAgent) else Opened)
