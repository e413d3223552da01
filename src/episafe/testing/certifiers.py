"""The battery for certifiers: the protocol, and over many small runs with a known P, that what is claimed is true."""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import episafe as es
from episafe.testing import persistence_checks
from episafe.testing.assertions import require, require_same_records
from episafe.testing.check_fixtures import Check, EpisodeGround, MakeAgent, checks_of, learn_by, run_all, selected
from episafe.testing.problems import exogenous, linear, one_hot

MakeCertifier = Callable[[], Any]
NUM_RUNS, LENGTH = 200, 100  # of the runs in which claims are counted
FEW = 20  # of them show whether anything is certified at all
FALSE_ALARM = 1e-3  # the probability that a certifier that keeps its word is rejected, at most
RECKLESS = 1e-3  # C_λ of a planner that hardly heeds the utility: a certificate must hold whatever is proposed
ROUNDING = 1e-9


def check_certifier(
    make_certifier: MakeCertifier, constants: es.Constants | None = None, *, skip: Iterable[str | Check] = ()
) -> list[str]:
    """Run every check on OPSE with this certifier; what passed, or one AssertionError that lists what did not.

    Args:
        make_certifier: () ↦ a new certifier, whose settings() tell its `delta`; 0.05 where they do not.
        constants: of the planner that proposes; by default `es.Constants.proposing()`, which prove nothing.
        skip: names of checks to leave out.

    Example:
        >>> import episafe as es
        >>> from episafe.testing import check_certifier
        >>> len(check_certifier(lambda: es.certify.Observation(delta=0.1)))
        8
    """
    return run_all(selected(certifier_checks(), skip), [("opse", (make_certifier, constants))])


def certifier_checks() -> list[Check]:
    """All checks (make_certifier, constants), for `pytest.mark.parametrize`."""
    return checks_of(__name__, check_certifier)


def check_protocol_is_complete(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """A certifier has a name, plain settings, and `begin`, whose certificate has every method of the protocol."""
    certifier, task = make_certifier(), _problem(make_certifier, 0).task
    require(isinstance(getattr(certifier, "name", None), str), "a certifier has a name: records are sorted by it")
    plain = all(isinstance(value, str | int | float) for value in certifier.settings().values())
    require(plain, f"settings() has other than text and numbers: {certifier.settings()}")
    certificate = certifier.begin(task)
    if certificate is None:  # the planner's own bound is the certificate
        return
    for name, _ in inspect.getmembers(es.certify.Certificate, inspect.isfunction):
        if not name.startswith("_"):
            require(callable(getattr(certificate, name, None)), f"the certificate has no {name}(): see certify/base.py")
    counts = all(hasattr(certificate, name) for name in ("expect", "judge", "abandon", "bounds"))
    require(counts or hasattr(certificate, "weigh"), "the certificate has neither judge() and the other methods of "
            "one that counts deployments, nor weigh(): see certify/base.py")  # fmt: skip


def check_one_certifier_serves_many_agents(
    make_certifier: MakeCertifier, constants: es.Constants | None = None
) -> None:
    """`begin` gives each agent a certificate of its own: what one learns is not known to the next."""
    certifier, problem = make_certifier(), _problem(make_certifier, 1)
    first, second = (es.run(problem, _opse(lambda: certifier, constants)(problem.task), LENGTH) for _ in range(2))
    sentence = "a second agent of one certifier runs otherwise: keep all that is learned in begin()"
    require_same_records(first, second, sentence)


def check_deployments_are_safe_or_proved(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """What a certificate hands out is the incumbent or has a bound of at least b, in float64: the agent's own check of
    that is the second one."""
    for problem in (_problem(make_certifier, 2), _problem(make_certifier, 2, linear)):
        agent = _opse(make_certifier, constants)(problem.task)
        if agent.certificate is None:
            continue
        found: list[Any] = []
        deploy = agent.certificate.deployment
        agent.certificate.deployment = lambda deploy=deploy, found=found: found.append(deploy()) or found[-1]
        list(learn_by(EpisodeGround(problem), agent, LENGTH))
        for one in found:
            passed = one.policy is problem.task.safe_policy or one.utility_bound >= problem.task.threshold
            require(passed, f"deployment() has the bound {one.utility_bound}, below the threshold: give the incumbent")


def check_claims_are_true(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """In at most δ of all runs is a bound above the true utility, or something deployed below b.

    If X of 200 runs, each on a problem of its own, have something false in them, a certifier that keeps its word has
    ℙ(X ≥ x) ≤ Σ_{i≥x} C(200, i) δⁱ (1 − δ)²⁰⁰⁻ⁱ, exactly. It is rejected where that is below 1/1000: so rarely is a
    good one. A bad one that fails only a little more often than δ is not found by this.
    """
    delta = float(make_certifier().settings().get("delta", 0.05))
    false = sum(_is_false(record) for record in _records(make_certifier, constants))
    chance = binomial_tail(false, NUM_RUNS, delta)
    said = f"{false} of {NUM_RUNS} runs have a bound above the truth or a policy below b; with delta = {delta:g} that"
    require(chance >= FALSE_ALARM, f"{said} has probability {chance:.2g}: the proof, or the code, is wrong")


def check_something_is_certified(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """In some of those runs more than the incumbent is deployed: else nothing was checked. Skip it for the timid."""
    for record in itertools.islice(_records(make_certifier, constants), FEW):
        if (record.sources != "safe").any():
            return
    raise AssertionError(f"nothing was certified in {FEW} runs of {LENGTH} episodes: skip this, or test longer runs")


def check_mixtures_are_recorded(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """Where mixtures are deployed, the record has the weights of each, and which component acted."""
    problem = _problem(make_certifier, 3)
    agent = _opse(make_certifier, constants)(problem.task)
    if len(agent.plan().policy.components) == 1:
        return
    record = es.run(problem, _opse(make_certifier, constants)(problem.task), LENGTH)
    weights, components = record.weights, record.components
    if components is None:
        raise AssertionError(
            "a mixture is deployed, and the record has no components and weights: draw one per episode"
        )
    require(np.allclose(weights.sum(axis=1), 1, atol=ROUNDING), "the weights do not sum to 1")
    acting = weights[np.arange(LENGTH), components]
    require((acting > 0).all(), "a component acted that has no weight: draw it with plan.policy.draw(rng)")


def check_certificate_goes_on_from_a_file(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """A certificate that is restored from a file goes on bit for bit."""
    persistence_checks.check_state_goes_on_from_a_file(_opse(make_certifier, constants), _problem(make_certifier, 4))


def check_certified_session_is_audited(make_certifier: MakeCertifier, constants: es.Constants | None = None) -> None:
    """A session goes on after it was closed, and its audit recomputes every bound."""
    persistence_checks.check_session_goes_on_and_is_audited(
        _opse(make_certifier, constants), _problem(make_certifier, 5)
    )


class Boastful:
    """A wrong certifier, to show that the battery finds one: it deploys a candidate alone with its mixture's bound.

    The mixture p·candidate + (1 − p)·incumbent has been proved to reach b; the candidate has not.
    """

    name = "boastful"
    delta = 0.05

    def begin(self, task: Any) -> "BoastfulCertificate":
        """That of `es.certify.Observation`, spoiled."""
        return BoastfulCertificate(es.certify.Observation(self.delta).begin(task))

    def settings(self) -> dict[str, str | int | float]:
        """It claims delta."""
        return {"certifier": self.name, "delta": self.delta}


class BoastfulCertificate:
    """All is that of `right`, but for what is deployed. A type of its own, which no compiled loop knows."""

    def __init__(self, right: Any) -> None:
        self._right = right

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)

    def deployment(self) -> Any:
        """The first component of the mixture, with the bound of the mixture."""
        found = self._right.deployment()
        return found._replace(policy=found.policy.components[0])


def binomial_tail(least: int, n: int, p: float) -> float:
    """ℙ(X ≥ least) for X ~ Binomial(n, p), summed term by term.

    Example:
        >>> binomial_tail(1, 2, 0.5)
        0.75
    """
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(least, n + 1))


def _opse(make_certifier: MakeCertifier, constants: es.Constants | None) -> MakeAgent:
    return lambda task: es.OPSE(task, constants or es.Constants.proposing(), certifier=make_certifier())


def _problem(make_certifier: MakeCertifier, seed: int, make: Callable[[int], es.LinearCMDP] = one_hot) -> es.LinearCMDP:
    """A random problem; one whose chance is exogenous and seen where the certifier asks for traces."""
    return (exogenous if getattr(make_certifier(), "uses_traces", False) else make)(seed)


def _records(make_certifier: MakeCertifier, constants: es.Constants | None) -> Iterator[es.Record]:
    """A problem for each run; every second planner is reckless: it proposes the best reward, whatever the utility."""
    careful = constants or es.Constants.proposing()
    reckless = careful.replace(lam_max=RECKLESS)
    for seed in range(NUM_RUNS):
        problem = _problem(make_certifier, seed, (one_hot, linear)[seed % 2])
        agent = _opse(make_certifier, reckless if seed % 4 < 2 else careful)(problem.task)
        yield es.run(problem, agent, LENGTH, seed)


def _is_false(record: es.Record) -> bool:
    """Whether some bound is above the true utility, or something deployed is below b."""
    wrong = (record.sources != "safe") & (record.utility_bounds > record.utility_values + ROUNDING)
    return bool(wrong.any() or (record.utility_values < record.threshold - ROUNDING).any())
