"""Audits: an intact log passes, every change of it is found, and a forged chain is found by what it claims."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

import episafe as es
from episafe.session.audit import explain, follow
from episafe.session.events import (
    START_HASH,
    AlarmRaised,
    Decide,
    Deploy,
    NewCandidate,
    Report,
    decode_lines,
    encode_lines,
)
from test_session import AGENTS, SHOP, live, play


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The folder of a session, its lines and its head."""
    folder, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    session = es.open(folder, AGENTS["observation"]())
    live(session, 12, rng)
    late = session.deploy(episode_id="late")
    session.abandon(session.deploy().id, "a test")
    session.halt(reason="maintenance")
    live(session, 1, rng)
    session.resume(reason="done")
    live(session, 4, rng)
    session.report(late.id, play(late, rng))
    session.close()
    return folder, (folder / "log.jsonl").read_bytes().splitlines(), session.head


def audit_lines(lines, folder, head=None, agent=None):
    folder.mkdir(exist_ok=True)
    (folder / "log.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return es.audit(folder, agent=agent, head=head)


def test_an_intact_log_passes_and_says_what_was_checked(log):
    folder, lines, head = log
    found = es.audit(folder, agent=AGENTS["observation"](), head=head)
    assert found.passed and not found.findings and not found.notes and str(found).startswith("PASSED")
    assert f"{len(lines)} events" in found.summary
    assert "needs the agent" in es.audit(folder).notes[0]


def changes_of(lines, k):
    """Return the log with event k removed, repeated, edited, swapped with the next, and cut off before it."""
    edited = lines[k].replace(b'"time":"2', b'"time":"3', 1)
    return {
        "removed": lines[:k] + lines[k + 1 :],
        "repeated": lines[: k + 1] + lines[k:],
        "edited": [*lines[:k], edited, *lines[k + 1 :]],
        "cut": lines[:k],
    } | ({"swapped": [*lines[:k], lines[k + 1], lines[k], *lines[k + 2 :]]} if k + 1 < len(lines) else {})


def test_each_event_removed_swapped_repeated_or_edited_is_found(log, tmp_path):
    _, lines, head = log
    for k in range(len(lines)):
        for change, forged in changes_of(lines, k).items():
            found = audit_lines(forged, tmp_path / "forged", head)
            assert not found.passed and found.findings, (k, change)


def forge(lines, change):
    """Return a chain with new hashes in which `change` replaced the body of one event."""
    bodies = [event.body for event in decode_lines(lines)]
    return encode_lines(change(bodies), 0, START_HASH)


def first(bodies, kind, test=lambda body: True):
    return next(k for k, body in enumerate(bodies) if isinstance(body, kind) and test(body))


def replaced(kind, test=lambda body: True, **fields):
    def change(bodies):
        k = first(bodies, kind, test)
        made = {name: value(bodies[k]) if callable(value) else value for name, value in fields.items()}
        return [*bodies[:k], msgspec.structs.replace(bodies[k], **made), *bodies[k + 1 :]]

    return change


def is_mixture(body):
    return len(body.weights) > 1


def other_component(body):
    return next(name for name in body.weights if name != body.component)


def swapped_weights(body):
    return dict(zip(body.weights, reversed(body.weights.values()), strict=True))


def wrong_shares(body):
    return msgspec.structs.replace(body.evidence, shares=tuple(reversed(body.evidence.shares)))


def better_totals(body):
    utilities = tuple((x + 1.0,) for (x,) in body.evidence.utilities)
    return msgspec.structs.replace(body.evidence, utilities=utilities)


def halted_before(bodies):
    k = first(bodies, Deploy, is_mixture)
    return [*bodies[:k], Decide("halt", "x"), *bodies[k:]]


FORGED = {
    "another component": (replaced(Deploy, is_mixture, component=other_component), "drawn"),
    "other weights": (replaced(Deploy, is_mixture, weights=swapped_weights), "drawn|below the limits"),
    "a bound too large": (replaced(Deploy, is_mixture, bounds=(9.0,)), "exceed"),
    "no probabilities": (replaced(Deploy, is_mixture, weights={"good": 0.7, "incumbent": 0.7}), "not probabilities"),
    "an unknown policy": (replaced(Deploy, weights={"nobody": 1.0}, component="nobody"), "below the limits"),
    "an uncertified policy alone": (replaced(Deploy, weights={"good": 1.0}, component="good"), "below the limits"),
    "shares": (replaced(Report, lambda r: len(set(r.evidence.shares)) > 1, evidence=wrong_shares), "computed again"),
    "totals": (replaced(Report, evidence=better_totals), "computed again"),
    "a sum": (replaced(Report, episode=lambda r: msgspec.structs.replace(r.episode, total_utility=(4.0,))), "sum to"),
    "a promotion": (lambda bodies: [*bodies, Decide("promote", "bribed", name="good")], "promote certified"),
    "a second report": (lambda bodies: [*bodies, bodies[first(bodies, Report)]], "not pending"),
    "an alarm": (lambda bodies: [*bodies, AlarmRaised("bound", "invented", True)], "does not follow"),
    "a candidate again": (lambda bodies: [*bodies, NewCandidate("incumbent")], "exists already"),
    "a halt that was ignored": (halted_before, "halted"),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_chain_is_found_by_what_it_claims(what, log, tmp_path):
    _, lines, _ = log
    change, text = FORGED[what]
    assert audit_lines(forge(lines, lambda bodies: bodies), tmp_path / "same", agent=AGENTS["observation"]()).passed
    found = audit_lines(forge(lines, change), tmp_path / "forged", agent=AGENTS["observation"]())
    assert not found.passed and re.search(text, str(found.findings[0])), str(found)


def test_another_agent_is_told_apart(log):
    folder, _, _ = log
    found = es.audit(folder, agent=es.SafeAgent(es.make("tabular", seed=1)))
    assert not found.passed and "began with" in str(found.findings[0])
    with pytest.raises(es.InvalidProblem, match="began with"):
        es.open(folder, es.SafeAgent(es.make("tabular", seed=1)))
    with pytest.raises(FileNotFoundError, match="folder of a session"):
        es.audit(folder / "nowhere")


def test_a_follower_needs_no_agent(log):
    folder, _, head = log
    state = follow(folder)
    session = es.open(folder, AGENTS["observation"]())
    assert state.head == head and state.status()["reports"] == session.status()["reports"]
    for name, bound in session.bounds().items():
        assert np.array_equal(bound, state.bounds()[name])


def test_a_deployment_is_explained(log):
    folder, lines, _ = log
    mixture = next(e.body for e in decode_lines(lines) if isinstance(e.body, Deploy) and is_mixture(e.body))
    facts, said = explain(folder, mixture.id)
    text = "\n".join(said)
    assert facts["weights"] == mixture.weights and mixture.component in text and "Reported at" in text
    assert f"{SHOP.task.thresholds[0]:.6g}" in text and json.dumps(facts)
    ended = next(k for k in range(30) if "abandoned" in "\n".join(explain(folder, k)[1]))
    assert explain(folder, ended)[0]["outcome"]["reason"] == "a test"
    with pytest.raises(ValueError, match="there is no deployment 99"):
        explain(folder, 99)


def test_the_snippet_of_the_docs_checks_the_chain(log, tmp_path, monkeypatch, capsys):
    folder, lines, head = log
    page = (Path(__file__).parent.parent / "docs" / "reference" / "log-format.md").read_text()
    snippet = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1].replace("rollout/", "")
    assert "episafe" not in snippet and len(snippet.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "log.jsonl", tmp_path)
    exec(snippet, {})
    assert head in capsys.readouterr().out
    (tmp_path / "log.jsonl").write_bytes(b"".join(line + b"\n" for line in lines[:3] + lines[4:]))
    with pytest.raises(AssertionError):
        exec(snippet, {})
