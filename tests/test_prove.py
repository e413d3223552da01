"""Proofs from logs: the bound against a slow oracle, coverage with controls that fail, and what is refused."""

import math

import numpy as np
import pandas
import polars
import pytest
from scipy.stats import binom

import episafe as es
from episafe.certify.evidence import Accounts
from episafe.data.prove import FORMS, lower_bound
from episafe.kernels.wealth import BET_WEIGHTS, BETS

SUCCESS = np.array([0.9, 0.6])  # of the candidate's action 0, by context; any other action succeeds half of the time
CANDIDATE = [[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]
VALUE = float(SUCCESS.mean())
TOLD = {"total_range": (0.0, 1.0), "min_propensity": 0.2}


def bandit_log(n, rng, drawn=0.3, stated=0.3):
    """Return a log of a bandit with two contexts, in which action 0 had probability `drawn` and 0.6 − `drawn`."""
    context = rng.integers(2, size=n)
    first, said = (np.array([p, 0.6 - p])[context] for p in (drawn, stated))
    draw = rng.random(n)
    action = np.where(draw < first, 0, np.where(draw < first + 0.4, 1, 2))
    wins = rng.random(n) < np.where(action == 0, SUCCESS[context], 0.5)
    propensity = np.select([action == 0, action == 1], [said, 0.4], 0.6 - said)
    told = {"state": context, "action": action, "propensity": propensity, "utility": wins.astype(float)}
    return pandas.DataFrame({"episode": np.arange(n), "step": 0, **told})


def walk_log(n, rng, H=3):
    """Return a log of episodes of H steps in which the logging policy is even and wins with action 1 count."""
    action = rng.integers(2, size=(n, H))
    wins = rng.random((n, H)) < 0.5 + 0.3 * action
    told = {"episode": np.repeat(np.arange(n), H), "step": np.tile(np.arange(H), n), "state": 0}
    return pandas.DataFrame(told | {"action": action.ravel(), "propensity": 0.5, "utility": wins.ravel() / H})


def test_the_bound_is_the_largest_mean_that_the_wealth_of_all_episodes_refutes(rng):
    frame = walk_log(400, rng)
    proof = es.prove(frame, es.StepPolicy([[0.3, 0.7]] * 3), 0.55, total_range=(-0.5, 1.0), min_propensity=0.5)
    acted = np.where(frame["action"], 0.7, 0.3).reshape(-1, 3).prod(axis=1)
    ratios, X = acted * 8, frame["utility"].to_numpy().reshape(-1, 3).sum(axis=1)
    np.testing.assert_allclose(proof.shares, ratios / 1.4**3)
    np.testing.assert_allclose(proof.totals, X)

    def wealth(mean):
        """Return the mean over forms and bets of the product of 1 + λ((1 − c) q(X'/ν' − 1) + c (ρX'/ν' − 1))."""
        whole, found = (X + 0.5) / (mean + 0.5), 0.0
        for c, weight in FORMS.items():
            gains = (1 - c) * proof.shares * (whole - 1) + c * (ratios * whole - 1)
            found += weight * np.prod(1 + np.outer(gains, BETS), axis=0) @ BET_WEIGHTS
        return found

    step = 1.5 / 64**3
    assert wealth(proof.bound) >= 20 > wealth(proof.bound + 1.1 * step)
    assert proof.mean_ratio == pytest.approx(ratios.mean())
    shuffled = frame.sample(frac=1, random_state=0)
    again = es.prove(shuffled, lambda h, state: [0.3, 0.7], 0.55, total_range=(-0.5, 1.0), min_propensity=0.5)
    assert again.largest_ratio == 8 > proof.largest_ratio  # of a function only the probabilities' range is known
    assert again.bound < proof.bound


def test_frames_of_several_libraries_and_states_of_several_columns_prove_the_same(rng):
    frame = bandit_log(2000, rng)
    wanted = es.prove(frame, CANDIDATE, 0.6, **TOLD).bound
    assert wanted > 0.6
    parts = frame.assign(state_0=frame["state"], state_1=1.5).drop(columns="state")
    for given, policy in (
        (polars.from_pandas(frame), CANDIDATE),
        (frame.assign(state=frame["state"].map({0: "a", 1: "b"})), lambda h, state: [state in "ab", 0.0, 0.0]),
        (parts, lambda h, state: [float(state[1] == 1.5), 0.0, 0.0]),
    ):
        assert es.prove(given, policy, 0.6, **TOLD).bound == wanted


@pytest.mark.parametrize("num_runs", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_bounds_cover_and_fail_with_wrong_propensities_or_missing_failures(num_runs):
    """At δ = 0.3. Where the log follows the candidate more often in the good context, the bound is wrong."""
    wrong = np.zeros(3)
    for seed in range(num_runs):
        rng = np.random.default_rng(seed)
        true, biased = bandit_log(1500, rng), bandit_log(1500, rng, drawn=0.4)
        lost = true[(true["utility"] > 0) | (rng.random(1500) < 0.5)]
        for j, frame in enumerate((true, biased.assign(propensity=0.3), lost)):
            acted = (frame["action"] == 0) * 0.2 / frame["propensity"]
            bound = lower_bound(acted.to_numpy(), frame["utility"].to_numpy(), 0.3, (0.0, 1.0), 5.0)
            wrong[j] += bound > VALUE
    assert wrong[0] <= binom.ppf(0.999, num_runs, 0.3)
    assert wrong[1:].min() > 0.4 * num_runs


def test_the_mean_ratio_has_an_alarm_of_its_own(rng):
    halves = es.prove(bandit_log(2000, rng).assign(propensity=0.2), CANDIDATE, 0.6, **TOLD)
    assert "propensities are wrong" in halves.alarm
    assert (halves.passed, halves.bound) == (False, 0.0)
    assert str(halves).startswith("NOT PROVED. The mean of the importance ratio is 1.5")
    alarms = sum(bool(es.prove(bandit_log(300, rng), CANDIDATE, 0.6, **TOLD).alarm) for _ in range(100))
    assert alarms <= 4


def test_a_proof_says_what_it_is_worth(rng):
    frame = bandit_log(4000, rng)
    proof = es.prove(frame, CANDIDATE, es.Constraint(None, 0.65, None), **TOLD)
    assert proof.passed and 0 < proof.margin < VALUE - 0.65
    assert "PASSED. With 95 % confidence" in str(proof) and "min_propensity and total_range are true" in str(proof)
    assert proof.plot().axes[0].get_ylabel() == "expected total, lower bound"
    counts, bounds = proof.curve()
    assert counts[-1] == proof.num_matched and bounds[-1] == pytest.approx(proof.bound, abs=1e-4)
    far = es.prove(frame[:400], CANDIDATE, 0.7, **TOLD)
    assert not far.passed and 400 < far.episodes_needed < 40_000 and "episodes are needed" in str(far)
    never = es.prove(frame[frame["action"] > 0][:50], CANDIDATE, 0.7, **TOLD)
    assert never.num_matched == 0 and 20 < never.episodes_needed < math.inf
    assert es.prove(frame, CANDIDATE, 0.95, **TOLD).episodes_needed == math.inf


def test_a_split_fits_on_one_part_and_proves_on_the_other(rng):
    frame, seen = bandit_log(4000, rng), []

    def fit(part):
        seen.extend(part["episode"])
        best = part.groupby("action")["utility"].mean().idxmax()
        return lambda h, state: np.eye(3)[best]

    proof = es.prove(frame, fit, 0.6, split=0.25, **TOLD)
    assert len(seen) == 1000 == len(frame) - proof.num_episodes and proof.passed
    assert es.prove(frame, CANDIDATE, 0.6, split=0.25, **TOLD).bound == proof.bound


def test_each_group_has_a_bound_and_its_part_of_delta(rng):
    frame = bandit_log(4000, rng)
    proof = es.prove(frame.assign(site=np.where(frame["state"], "south", "north")), CANDIDATE, 0.7, by="site", **TOLD)
    assert not proof.passed and proof.bound == proof.groups["south"].bound < 0.6 < 0.7 < proof.groups["north"].bound
    own = es.prove(frame[frame["state"] == 0], CANDIDATE, 0.7, delta=0.025, **TOLD)
    assert proof.groups["north"].bound == own.bound
    assert "1 of 2 groups reach the limit" in str(proof)


def test_an_episode_that_ends_early_says_so(rng):
    frame = walk_log(300, rng)
    short = frame[(frame["episode"] % 3 > 0) | (frame["step"] < 2)]
    policy = es.StepPolicy([[0.3, 0.7]] * 3)
    told = {"total_range": (0, 1), "min_propensity": 0.5}
    with pytest.raises(es.InvalidEpisode, match="episode 0 has 2 steps of 3"):
        es.prove(short, policy, 0.5, **told)
    ended = short.assign(terminated=(short["episode"] % 3 == 0) & (short["step"] == 1))
    assert es.prove(ended, policy, 0.5, **told).shares.max() <= 1
    with pytest.raises(es.InvalidProblem, match="give min_propensity as a list"):
        es.prove(ended, lambda h, state: [0.3, 0.7], 0.5, **told)


REFUSED = {
    "no propensities": (lambda f: f.drop(columns="propensity"), {}, "no column 'propensity': record the probability"),
    "no utility": (lambda f: f.drop(columns="utility"), {}, "no column 'utility'"),
    "an episode twice": (lambda f: pandas.concat([f, f[:1]]), {}, "steps 0, 1, … once each"),
    "a step missing": (lambda f: f[f["episode"] > 0].assign(step=1), {}, "steps 0, 1, … once each"),
    "a propensity of 0": (lambda f: f.assign(propensity=0.0), {}, r"is not in \(0, 1\]"),
    "a low propensity": (lambda f: f.assign(propensity=0.1), {}, "below min_propensity 0.2"),
    "a total too large": (lambda f: f.assign(utility=2.0), {}, "outside total_range"),
    "an unknown action": (lambda f: f.assign(action=7), {}, "not in the table of the candidate"),
    "a text": (lambda f: f.assign(utility="x"), {}, "values that are not numbers"),
    "no rows": (lambda f: f[:0], {}, "no rows"),
    "a limit out of range": (lambda f: f, {"total_range": (0.7, 1.0)}, "is not in total_range"),
    "no least propensity": (lambda f: f, {"min_propensity": 0.0}, "min_propensity must be in"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_log_that_proves_nothing_is_refused_with_the_remedy(what, rng):
    broken, told, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        es.prove(broken(bandit_log(20, rng)), CANDIDATE, 0.6, **TOLD | told)


# the same evidence in a session


def shop(candidates=None):
    """Return an agent for a bandit with two contexts whose incumbent takes action 2, with Observation."""
    P = np.full((1, 2, 3, 2), 0.5)
    success = np.tile([0.6, 0.5, 0.58], (1, 2, 1))
    problem = es.LinearCMDP(
        P, success, success, initial_state=0, threshold=0.5, safe_policy=np.eye(3)[np.full((1, 2), 2)]
    )
    return es.SafeAgent(problem, es.certify.Observation(delta=0.1), candidates=candidates or {"v2": CANDIDATE})


def test_a_session_begins_with_what_a_log_proves_and_counts_no_episode_twice(tmp_path, rng):
    frame = bandit_log(1500, rng)
    frame["state"] = 0
    frame["utility"] = np.where(frame["action"] == 0, rng.random(1500) < 0.6, frame["utility"]).astype(float)
    frame["propensity"] = np.where(frame["action"] == 0, 0.3, frame["propensity"])
    told = {"min_propensity": 0.2, "reason": "the autumn"}
    with es.open(tmp_path, shop()) as session:
        bounds = session.read(polars.from_pandas(frame[:1000]), **told)
        assert 0.4 < bounds["v2"][0] <= 0.6
        with pytest.raises(ValueError, match="500 of 1000 episodes were read before"):
            session.read(frame[500:], **told)
        assert session.read(frame[1000:], **told)["v2"] >= bounds["v2"]
        d = session.deploy()
        session.report(d.id, es.Episode([0, 0], [0 if d.plan.source != "safe" else 2], [0.5], [1.0], component=None))
        with pytest.raises(ValueError, match="read logs before the first one"):
            session.read(bandit_log(100, rng).assign(episode=np.arange(100) + 9000, state=0), **told)
        bounds = session.bounds()
    with es.open(tmp_path, shop()) as session:
        assert session.bounds() == bounds
    assert es.audit(tmp_path, shop()).passed and es.audit(tmp_path).passed
    text = (tmp_path / "log.jsonl").read_text()
    assert '"kind":"evidence"' in text and "min_propensity and total_range are true" in text


def test_logged_and_live_episodes_together_cover():
    """At δ_1 = 0.3: a sequence that begins with a log and goes on live is wrong in at most 30 % of the runs."""
    wrong = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        limits = (es.Constraint(None, 0.5, 0.4),)
        made = Accounts(es.Task(None, None, limits, es.TablePolicy(np.ones((1, 1, 1)))), 0.6, 2, largest=1.0)
        made.begin(1, "v2")
        shares, X = rng.random(200) < 0.2, (rng.random(200) < 0.8).astype(float)
        made.read_log(np.array([1]), shares[None] * 1.0, X[None, :, None])
        for k in range(60):
            made.expect(k, [1])
            made.credit(k, np.array([1]), np.ones(1), np.array([[float(rng.random() < 0.8)]]))
        wrong += made.wealth.lower[1, 0] > 0.8
    assert 0 < wrong <= binom.ppf(0.999, 150, 0.3)


def test_logged_traces_are_replayed_under_candidates(tmp_path):
    problem = es.make("inventory")
    generous = np.eye(4)[np.full(problem.P.shape[:2], 2)]

    def agent():
        return es.SafeAgent(problem, es.certify.Hindsight(), candidates={"generous": generous})

    rng, rows = np.random.default_rng(0), []
    move = problem.task.move
    for label in range(40):
        (state, chances), incumbent = problem.draw_trace(rng), problem.task.incumbent
        for h, w in enumerate(chances):
            action = incumbent.act(h, state, rng)
            following, reward, utility = move(h, state, action, w)
            told = {"episode": label, "step": h, "state": state, "action": action, "next_state": following}
            rows.append(told | {"reward": reward, "utility": float(np.ravel(utility)[0]), "chance_0": w[0]})
            state = following
    frame = pandas.DataFrame(rows)
    with es.open(tmp_path, agent()) as session:
        before = session.bounds()["generous"][0]
        assert session.read(frame, reason="last year")["generous"][0] > before + 1
        with pytest.raises(ValueError, match="40 of 40 episodes were read before"):
            session.read(frame, reason="again")
        session.deploy()
    assert es.audit(tmp_path, agent()).passed
