"""The handlers of a service: requests and answers as plain JSON values, on one session. It knows nothing of HTTP.

Whatever goes wrong with a plan or an action, the answer is the incumbent, with the reason. A deployment that was
answered so is abandoned: what the incumbent does in it must not count for whoever was drawn.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from secrets import token_hex
from typing import Any

import numpy as np

from episafe.deployment.open_session import OpenSession
from episafe.deployment.session_book import Deployment
from episafe.errors import InvalidEpisode, NotKept
from episafe.logs.logged_episode import steps_of, whole_episode
from episafe.storage.json_values import plain
from episafe.types import HELD, Episode

REMEMBERED = 100_000  # names of episodes, the last ones
PARTS = tuple(part.name for part in fields(Episode))  # what a report may say
Values = Mapping[str, Any]
Answer = dict[str, Any]


class Handlers:
    """Answers for one session. Safe to call from several threads."""

    def __init__(self, session: OpenSession) -> None:
        self.session = session
        coins, actions = np.random.SeedSequence().spawn(2)
        self._coins, self._actions = np.random.default_rng(coins), np.random.default_rng(actions)
        self._own = int(session.journal_id or token_hex(), 16)  # of the actions of its deployments
        self._acting = threading.Lock()
        self.num_answers = 0  # to `plan`, of named episodes
        # by name: the number of the last answer to `plan`, and its deployment, None where the incumbent acts
        self._answers: dict[str, tuple[int, int | None]] = {}

    def plan(self, asked: Values) -> Answer:
        """One more deployment; the same again for the same `episode_id`.

        Args:
            asked: `episode_id`, a name for the episode; `round`, for bandits whose arms change.
        """
        only(asked, "episode_id", "round")
        made = self.session.deploy(self._coins, asked.get("round"), name_in(asked))
        plan = made.plan
        said = {
            "deployment": None if made.id == HELD else made.id,
            "plan": plan.id,
            "acting": made.acting,
            "component": made.component,
            "source": plan.source,
            "level": plan.level,
            "reason": plan.reason,
            "utility_bound": plain(plan.utility_bound),
        }
        return said | ({"action": self._drawn(made)} if self.session.task.kind == "bandit" else {})

    def act(self, asked: Values) -> Answer:
        """An action for one step of an episode.

        Args:
            asked: `deployment`, or null for the incumbent; `step`, from 0 at the first observation; `state`.
        """
        only(asked, "deployment", "step", "state")
        if "state" not in asked:
            raise ValueError("act needs a state")
        state = self.session.task.as_state(value_of(asked["state"]))
        try:
            self.session.task.require_state(state)
        except InvalidEpisode as error:
            raise ValueError(str(error)) from error
        step = whole(asked, "step") + int(getattr(self.session.task, "random_start", False))  # as the task counts
        deployment = None if asked.get("deployment") is None else whole(asked, "deployment")
        try:
            policy = None if deployment is None else self.session.acting(deployment)
            reason = (
                "asked for the incumbent" if deployment is None else f"what acts in deployment {deployment} is gone"
            )
            if policy is not None:
                return {"action": self._act(policy, step, state), "deployment": deployment, "reason": ""}
        except InvalidEpisode as error:
            return self._incumbent_acts(step, state, str(error))
        except Exception as error:  # of the policy: whatever went wrong, the incumbent is safe
            reason = f"{type(error).__name__}: {error}"
        self.give_up(deployment)
        return self._incumbent_acts(step, state, reason)

    def learn(self, asked: Values) -> Answer:
        """Take in one report; `again` says that it was known already, and nothing was changed.

        Args:
            asked: `deployment` or `episode_id` or both; `episode`, its parts by name, of the steps that the environment
                made, and `terminated` where it ended early; of a bandit `action`, `reward`, `utility` in place of it.
                By its `episode_id` alone only what this process has answered a plan of: of others nobody knows whether
                the incumbent acted, since the answer came too late.
        """
        is_bandit = self.session.task.kind == "bandit"
        only(asked, "deployment", "episode_id", *(("action", "reward", "utility") if is_bandit else ("episode",)))
        name, report = name_in(asked), (_observation(asked) if is_bandit else (_episode(asked, self.session.task),))
        deployment = None if asked.get("deployment") is None else whole(asked, "deployment")
        if deployment is None and name is None:
            raise ValueError(
                "learn needs a deployment or an episode_id: without one a repeated report would count twice"
            )
        try:
            if name is not None and name not in self.session.book.names:
                deployment = self._answered(name, deployment)
            self.session.learn(*report, deployment=deployment, episode_id=name)
        except InvalidEpisode:
            if name is None or not self.session.was_reported(name, deployment):
                raise
            return {"learned": True, "again": True}
        return {"learned": True, "again": False}

    def _answered(self, name: str, deployment: int | None) -> int | None:
        """The deployment of a report that names its episode, as the last answer to `plan` did, or as it says itself."""
        known = self._answers.get(name)
        if known is not None and known[1] is None:
            raise InvalidEpisode(f"the incumbent acts in episode {name!r}, and nothing of it is kept: report nothing")
        if known is None and deployment is None:
            raise InvalidEpisode(
                f"no plan of episode {name!r} was answered since the service started: report it with the number of its "
                "deployment, which the answer to plan has"
            )
        if known is None or deployment is not None:
            return deployment
        self.session.book.require_one(name)
        return known[1]

    def abandon(self, asked: Values) -> Answer:
        """Say that a deployment will never be reported."""
        only(asked, "deployment")
        self.session.abandon(whole(asked, "deployment"))
        return {"abandoned": True}

    def halt(self, asked: Values) -> Answer:
        """Only the incumbent acts from now on. There is no way back over HTTP: that is for a person, at the folder."""
        only(asked, "reason")
        reason = asked.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError("halt needs a reason: who stops it, and why")
        self.session.halt(reason)
        return {"halted": True}

    def status(self, asked: Values) -> Answer:
        """Deployments, reports, and what is missing."""
        only(asked)
        status = self.session.status()
        said = asdict(status) | {"num_missing": status.num_missing, "warning": status.warning}
        return dict(plain(said | {"bounds": self.session.agent.bounds()}))

    def health(self, asked: Values) -> Answer:
        """That it answers, and whether the agent decides or only the incumbent acts."""
        only(asked)
        return {"alive": True, "stopped": self.session.stopped}

    def note_answer(self, asked: Values, answer: Answer, began: int) -> Answer:
        """What `plan` is answered in the end, remembered: an episode is reported by its name if that is a deployment.

        Somebody who asked twice may have been answered by the incumbent meanwhile; then that stands.

        Args:
            asked: the request.
            answer: of `plan`, or `refuse`.
            began: `num_answers` when the request came.
        """
        name = name_in(asked)
        if name is None:
            return answer
        at, known = self._answers.get(name, (0, None))
        if at > began and known is None and answer["deployment"] is not None:
            answer = self.refuse(asked, "the same was asked twice at once, and the incumbent was the answer")
        self.num_answers += 1
        self._answers[name] = self.num_answers, answer["deployment"]
        if len(self._answers) > REMEMBERED:
            del self._answers[next(iter(self._answers))]
        return answer

    def refuse(self, asked: Values, reason: str) -> Answer:
        """What `plan` answers where nothing may be deployed but the incumbent; nothing is written down."""
        said = {"deployment": None, "plan": HELD, "acting": "incumbent", "component": 0, "source": "safe",
                "level": self.session.agent.level, "reason": reason, "utility_bound": None}  # fmt: skip
        if self.session.task.kind == "bandit":
            said["action"] = self._own_action(self.session.agent.told_plan(reason, asked.get("round")).policy)
        return said

    def made_before(self, asked: Values) -> int | None:
        """The deployment that was made by this `episode_id`, if there is one by now."""
        name = asked.get("episode_id")
        return None if name is None else self.session.book.called.get(str(name))

    def give_up(self, deployment: int | None) -> None:
        """Abandon a deployment that was answered otherwise; one that is gone already is left."""
        if deployment is not None:
            with suppress(InvalidEpisode, NotKept):
                self.session.abandon(deployment)

    def _incumbent_acts(self, step: int, state: Any, reason: str) -> Answer:
        policy = self.session.instead(reason).policy
        acts = getattr(policy, "policy", policy)
        if not (hasattr(acts, "act") or hasattr(acts, "probabilities")):
            raise ValueError("the incumbent is a name here and no policy that acts: let it act where it lives")
        action = self._act(policy, step, state)
        return {"action": action, "deployment": None, "reason": reason}

    def _act(self, policy: Any, step: int, state: Any) -> int:
        with self._acting:
            return int(policy.act(step, state, self._actions))

    def _drawn(self, made: Deployment) -> list[float]:
        """The action of a round: that of a deployment is the same, however often and whenever it is asked for."""
        if made.id == HELD:
            return self._own_action(made.policy)
        return [float(entry) for entry in made.policy.draw(np.random.default_rng([self._own, made.id]))]

    def _own_action(self, policy: Any) -> list[float]:
        """One that nobody asks for again."""
        with self._acting:
            return [float(entry) for entry in policy.draw(self._actions)]


def only(asked: Values, *known: str) -> None:
    """Refuse what nobody reads: a misspelt name would be left out silently."""
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise ValueError(f"unknown: {', '.join(map(repr, unknown))}; known: {', '.join(known) or 'nothing'}")


def name_in(asked: Values) -> str | None:
    """The name of an episode."""
    name = asked.get("episode_id")
    if name is None:
        return None
    if not isinstance(name, str | int) or isinstance(name, bool) or not 0 < len(str(name)) <= 200:
        raise ValueError(f"episode_id must be a text of 1 to 200 characters or a whole number, got {name!r:.80}")
    return str(name)


def whole(asked: Values, name: str) -> int:
    """A whole number ≥ 0."""
    value = asked.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a whole number ≥ 0, got {value!r:.80}")
    return value


def value_of(said: Any) -> Any:
    """A state or chance as Python has it: lists are tuples, so that they can be looked up."""
    if isinstance(said, list):
        return tuple(value_of(entry) for entry in said)
    if isinstance(said, dict):
        raise ValueError("a state is a number, a text, or a list of these")
    return said


def _episode(asked: Values, task: Any) -> Episode:
    """The episode of a report, as the task counts it: a dummy step before a random start, ENDED after an early end."""
    said = asked.get("episode")
    if not isinstance(said, dict):
        raise ValueError('learn needs an episode: its parts by name, e.g. {"states": [0, 2], "actions": [1]}')
    only(said, *PARTS, "terminated")
    ended = said.get("terminated", False)
    if not isinstance(ended, bool):
        raise ValueError(f"terminated must be true or false, got {ended!r:.80}")
    lists = {name: said[name] for name in ("states", "actions", "rewards", "utilities") if said.get(name) is not None}
    for name, values in lists.items():
        if not isinstance(values, list):
            raise ValueError(f"{name} must be a list, got {values!r:.80}")
    states = [value_of(state) for state in lists["states"]] if "states" in lists else None
    trace = None if said.get("trace") is None else value_of(said["trace"])
    parts = {name: said[name] for name in PARTS if name in said}
    episode = Episode(**{**parts, **lists, "states": states, "trace": trace})
    is_of_steps = states is not None and "actions" in lists
    return _completed(episode, task, ended) if is_of_steps and (task.random_start or task.may_end) else episode


def _completed(episode: Episode, task: Any, ended: bool) -> Episode:
    """An episode of the T steps that the environment made as one of all steps of the task, as logs have it."""
    H, T = steps_of(task), len(episode.actions)
    if T > H or (T < H and not ended):
        raise InvalidEpisode(
            f'the episode has {T} steps, and {H} are to be reported: give "terminated": true where the environment '
            "ended it before; one that was cut short by anything else is to be abandoned"
        )
    lengths = {"states": T + 1} | {name: T for name in ("rewards", "utilities") if getattr(episode, name) is not None}
    for name, length in lengths.items():
        if len(getattr(episode, name)) != length:
            raise InvalidEpisode(
                f"{name} must have length {length}, for {T} actions, got {len(getattr(episode, name))}"
            )
    seen = (episode.rewards, episode.utilities)
    made = whole_episode(task, episode.states, episode.actions, seen, ended, "the report")
    return replace(episode, states=made.states, actions=made.actions, rewards=made.rewards, utilities=made.utilities,
                   trace=_whole_trace(episode.trace, H, T))  # fmt: skip


def _whole_trace(trace: Any, num_steps: int, num_made: int) -> Any:
    """A trace of an episode that ended early: after its end nobody saw what chance brought."""
    is_pair = isinstance(trace, tuple) and len(trace) == 2 and isinstance(trace[1], tuple)
    if not is_pair or len(trace[1]) != num_made:
        return trace
    return trace[0], (*trace[1], *[None] * (num_steps - num_made))


def _observation(asked: Values) -> tuple[Any, ...]:
    missing = [name for name in ("action", "reward", "utility") if name not in asked]
    if missing:
        raise ValueError(f"learn needs {', '.join(missing)}")
    return asked["action"], asked["reward"], asked["utility"]
