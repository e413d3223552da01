"""Problems with one thing wrong in each, and the check that must find it."""

from functools import cached_property

import episafe as es
from episafe.testing.problems import by_functions, linear, one_hot
from mutant_agents import CLOCK, Half


def told(problem, **changes):
    """The problem, with other things told in its task than are true."""
    facts = vars(problem.task)
    for name in [name for name in facts if isinstance(getattr(type(problem.task), name, None), cached_property)]:
        del facts[name]  # what was computed of the true ones
    for name, value in changes.items():
        object.__setattr__(problem.task, name, value)
    return problem


def known(problem, **changes):
    """The problem, with other things in itself."""
    vars(problem).update(changes)
    return problem


def promising(problem):
    """An incumbent that has less than is said of it."""
    task = problem.task
    utility = task.utility if task.is_listed else None
    return told(problem, constraint=es.Constraint(utility, task.threshold, task.slack + 0.4))


def by_luck(h, state, action, rng):
    return (float(next(CLOCK) % 7) / 7, "left")


ENVIRONMENTS = [
    (lambda: known(one_hot(), P=0.9 * one_hot().P), "check_transitions_are_distributions"),
    (lambda: told(one_hot(), safe_policy=Half(one_hot().task.safe_policy.table())), "check_incumbent_is_a_policy"),
    (lambda: told(one_hot(), reward=2 * one_hot().task.reward), "check_signals_are_in_range"),
    (lambda: told(linear(), phi=9 * linear().task.phi), "check_feature_norms"),
    (lambda: told(linear(), phi=linear(1).task.phi[..., :1]), "check_features_are_linear"),
    (lambda: promising(one_hot()), "check_incumbent_is_safe"),
    (lambda: promising(by_functions()), "check_incumbent_is_safe"),
    (lambda: known(one_hot(), optimal_value=lambda method="dual": 0.0), "check_optimum_is_the_best_safe_value"),
    (lambda: known(by_functions(), sample=by_luck), "check_runs_repeat_by_seed"),
    (lambda: known(one_hot(), save=one_hot(1).save), "check_save_and_load"),
    (lambda: told(one_hot(), hint=one_hot().P), "check_task_tells_no_transitions"),
]
