"""Certifiers with one thing wrong in each, and the check that must find it."""

import episafe as es
from episafe import testing
from mutant_agents import CLOCK, uniform


class Certificate:
    """That of `Observation`, but for what a subclass changes."""

    def __init__(self, task):
        self.task, self._right = task, es.certify.Observation().begin(task)

    def __getattr__(self, name):
        return getattr(self._right, name)


class Certifier:
    name, kind = "own", Certificate

    def begin(self, task):
        return self.kind(task)

    def settings(self):
        return {"certifier": self.name, "delta": 0.05}


def certifier(**own):
    """A certifier whose certificate has these methods in place of the right ones."""
    return type("Own", (Certifier,), {"kind": type("OwnCertificate", (Certificate,), own)})


def unproved(self):
    return self._right.deployment()._replace(policy=uniform(self.task), utility_bound=self.task.threshold - 0.01)


def incumbent(self):
    return self._right.deployment()._replace(policy=self.task.safe_policy, source="safe", reason="never")


def alone(self):
    """The candidate alone, as the Boastful do, with a λ by the clock."""
    found = self._right.deployment()
    return found._replace(policy=getattr(found.policy, "components", (found.policy,))[0], lam=float(next(CLOCK)))


class Loaded(es.MixturePolicy):
    """A coin that always shows the side of weight 0."""

    def __init__(self, components):
        super().__init__(components, (1.0, 0.0))

    def draw(self, rng):
        return 1, self.components[1]


def loaded(self):
    return self._right.deployment()._replace(policy=Loaded((self.task.safe_policy, self.task.safe_policy)))


class Anonymous(Certifier):
    name = None


class Shared(Certifier):
    """One certificate for all."""

    def __init__(self):
        self.once = None

    def begin(self, task):
        self.once = self.once or testing.Boastful().begin(task)
        return self.once


CERTIFIERS = [
    (Anonymous, "check_protocol_is_complete"),
    (certifier(aim=None), "check_protocol_is_complete"),
    (Shared, "check_one_certifier_serves_many_agents"),
    (certifier(deployment=unproved), "check_deployments_are_safe_or_proved"),
    (testing.Boastful, "check_claims_are_true"),
    (es.certify.Model, "check_claims_are_true"),  # with constants that prove nothing
    (certifier(deployment=incumbent), "check_something_is_certified"),
    (certifier(deployment=loaded), "check_mixtures_are_recorded"),
    (certifier(deployment=alone, restore=lambda *_: None), "check_certificate_goes_on_from_a_file"),
    (certifier(deployment=alone), "check_certified_session_is_audited"),
]
