"""Agents with one thing wrong in each, and the check that must find it."""

import contextlib
import gc
import itertools
import types
from dataclasses import replace

import numpy as np

import episafe as es

CLOCK = itertools.count()  # goes on, whoever asks


class Right(es.OPSE):
    """Nothing wrong; its runs are those of the plain loop."""

    def __init__(self, task):
        super().__init__(task, es.Constants.proposing(), certifier=es.certify.FreshData())


def uniform(task):
    return es.TablePolicy(np.full(task.reward.shape, 1 / task.num_actions))


class Half(es.TablePolicy):
    def probabilities(self, h, state):
        return super().probabilities(h, state) / 2


class Unnormalised(Right):
    def plan(self):
        return replace(super().plan(), policy=Half(self.task.safe_policy.table()))


class Unchecked(Right):
    def plan(self):
        return replace(super().plan(), policy=uniform(self.task), source="search", utility_bound=0.0)


class NoNumber(Right):
    def plan(self):
        return replace(super().plan(), source="search", utility_bound=np.nan)


class Impostor(Right):
    def plan(self):
        return replace(super().plan(), policy=uniform(self.task), source="safe")


class Counting(Right):
    """Planning counts how often it is asked."""

    def plan(self):
        self.num_runs += 1
        return super().plan()


class Fickle(Right):
    """Each plan differs from the last."""

    def plan(self):
        return replace(super().plan(), lam=float(next(CLOCK)))


class Peeking(Right):
    """Looks for P where a debugger would."""

    def __init__(self, task):
        super().__init__(task)
        self.found = next(one.P for one in gc.get_objects() if isinstance(one, es.LinearCMDP) and one.task is task)


class Copying(Peeking):
    def __init__(self, task):
        super().__init__(task)
        self.found = self.found.copy()


class Hiding(Peeking):
    def __init__(self, task):
        super().__init__(task)
        P, self.found = self.found, None
        self.look = lambda: P


class Gullible(Right):
    """Swallows what does not fit."""

    def learn(self, episode, plan_id=None):
        with contextlib.suppress(es.InvalidEpisode):
            super().learn(episode, plan_id)


class Hasty(Right):
    """Counts first, checks then."""

    def learn(self, episode, plan_id=None):
        self.num_runs += 1
        super().learn(episode, plan_id)


class PlansFirst(Right):
    def learn(self, episode, plan_id=None):
        if not self.recent_plans():
            raise RuntimeError("plan first")
        super().learn(episode, plan_id)


class CountsFromOne(Right):
    def plan(self):
        made = super().plan()
        return replace(made, id=made.id + 1)


class Fragile(Right):
    def plan(self):
        self._propose()
        return super().plan()


class Silent(Right):
    def plan(self):
        return replace(super().plan(), reason="")


class Deaf(Right):
    def incumbent_plan(self, reason, round=None):
        return replace(self.plan(), reason=reason)


class Wordless(Right):
    def incumbent_plan(self, reason, round=None):
        return super().incumbent_plan("", round)


class Wordy(Right):
    def settings(self):
        return super().settings() | {"friends": ["a", "b"]}


class Nameless(Right):
    def settings(self):
        return {name: value for name, value in super().settings().items() if name != "agent"}


class Secretive(Right):
    """Two of them that differ in patience look alike."""

    def __init__(self, task, patience=3):
        super().__init__(task)
        self.patience = patience


class Losing(Right):
    """Does not keep what it was given."""

    def __init__(self, task, patience=3):
        super().__init__(task)
        self.waits = patience


class Frank(Secretive):
    """Nothing wrong: it says its patience."""

    def settings(self):
        return super().settings() | {"patience": self.patience}


class Boasting(es.OPSE):
    """Its plans claim a proof, and its constants were set by hand."""

    def __init__(self, task):
        super().__init__(task, es.Constants.proposing())

    def plan(self):
        return replace(super().plan(), level="theorem")


class Restless(Right):
    def fingerprint(self):
        return f"{super().fingerprint()}{self.num_learned}"


class Unique(Right):
    def fingerprint(self):
        return f"{super().fingerprint()}{id(self)}"


class Forgetful(Right):
    """Its state lacks what its plans depend on."""

    def __init__(self, task):
        super().__init__(task)
        self.learned = 0

    def learn(self, episode, plan_id=None):
        super().learn(episode, plan_id)
        self.learned += 1

    def plan(self):
        return replace(super().plan(), lam=float(self.learned))


class RestoresHalf(Right):
    def restore(self, state):
        super().restore(state)
        self.num_runs = 0


class Stateless(Right):
    def state(self):
        raise NotImplementedError("no state")


class Lending(Right):
    """Hands out an array that it goes on writing to."""

    def __init__(self, task):
        super().__init__(task)
        self.seen = np.zeros(1)

    def learn(self, episode, plan_id=None):
        super().learn(episode, plan_id)
        self.seen += 1

    def state(self):
        return super().state() | {"own.seen": self.seen}

    def restore(self, state):
        super().restore({name: array for name, array in state.items() if name != "own.seen"})
        self.seen = np.array(state["own.seen"])


class Taking(Lending):
    """Goes on writing to an array that it was handed."""

    def state(self):
        return {**super().state(), "own.seen": self.seen.copy()}

    def restore(self, state):
        super().restore(state)
        self.seen = state["own.seen"]


class Unruly(Right):
    """No subclass is heard."""

    def __init__(self, task):
        super().__init__(task)
        self.plan = types.MethodType(Right.plan, self)


AGENTS = [
    (Unnormalised, "check_policies_are_distributions"),
    (Unchecked, "check_certified_plans_passed"),
    (NoNumber, "check_certified_plans_passed"),
    (Impostor, "check_safe_is_the_incumbent"),
    (Counting, "check_planning_changes_nothing"),
    (Fickle, "check_planning_changes_nothing"),
    (Fickle, "check_same_seed_same_record"),
    (Peeking, "check_nothing_secret_is_reached"),
    (Copying, "check_nothing_secret_is_reached"),
    (Hiding, "check_nothing_secret_is_reached"),
    (Gullible, "check_wrong_reports_change_nothing"),
    (Hasty, "check_wrong_reports_change_nothing"),
    (lambda task: Right(getattr(task, "task", task)), "check_problem_is_no_task"),
    (PlansFirst, "check_learning_needs_no_plan"),
    (CountsFromOne, "check_learning_needs_no_plan"),
    (Fragile, "check_failures_deploy_the_incumbent"),
    (Silent, "check_failures_deploy_the_incumbent"),
    (Deaf, "check_halted_sessions_deploy_the_incumbent"),
    (Wordless, "check_halted_sessions_deploy_the_incumbent"),
    (Wordy, "check_settings_are_plain"),
    (Nameless, "check_settings_are_plain"),
    (Secretive, "check_settings_tell_the_arguments"),
    (Losing, "check_settings_tell_the_arguments"),
    (Boasting, "check_plans_claim_no_more_than_the_agent"),
    (Restless, "check_agents_built_alike_are_alike"),
    (Unique, "check_agents_built_alike_are_alike"),
    (Forgetful, "check_state_goes_on_from_a_file"),
    (RestoresHalf, "check_state_goes_on_from_a_file"),
    (Stateless, "check_state_goes_on_from_a_file"),
    (Lending, "check_state_is_a_copy"),
    (Taking, "check_state_is_a_copy"),
    (Fickle, "check_stopped_run_goes_on"),
    (Fickle, "check_session_goes_on_and_is_audited"),
    (Unruly, "check_overrides_are_respected"),
]


class RightBandit(es.bandits.OPLBSP):
    """Nothing wrong; its runs are those of the plain loop."""

    def __init__(self, task):
        super().__init__(task, 10_000, radius=0.3)

    def learn(self, action, reward, utility, plan_id=None):
        super().learn(action, reward, utility, plan_id=plan_id)


class UncheckedBandit(RightBandit):
    def plan(self, round=None):
        return replace(super().plan(round), source="search", utility_bound=0.0)


class ImpostorBandit(RightBandit):
    def plan(self, round=None):
        made = super().plan(round)
        return replace(made, atoms=-made.atoms, source="safe")


class GullibleBandit(RightBandit):
    def learn(self, action, reward, utility, plan_id=None):
        super().learn(action, np.nan_to_num(reward), utility, plan_id=plan_id)


class PeekingBandit(RightBandit):
    def __init__(self, task):
        super().__init__(task)
        worlds = [one for one in gc.get_objects() if isinstance(one, es.bandits.LinearBandit) and one.task is task]
        self.found = worlds[0].theta_u.copy()


class ForgetfulBandit(RightBandit):
    def restore(self, state):
        super().restore(state)
        self.learner.model.sums[:] = 0


BANDIT_AGENTS = [
    (UncheckedBandit, "check_certified_plans_passed"),
    (ImpostorBandit, "check_safe_is_the_incumbent"),
    (GullibleBandit, "check_wrong_reports_change_nothing"),
    (PeekingBandit, "check_nothing_secret_is_reached"),
    (ForgetfulBandit, "check_state_goes_on_from_a_file"),
]
