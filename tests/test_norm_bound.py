"""P_h = φᵀμ_h with ‖Σ μ_h(s') g(s')‖ ≤ B max g: without that condition the bounds on features are wrong."""

import itertools
import math

import numpy as np
import pytest

import episafe as es
from episafe.learning.theory_constants import Sizes, theorem
from episafe.problems.exact_answers import least_norm_bound, measures

H, S, A = 2, 3, 2  # a start, a good state and a bad one


def small_features(c=0.1, norm_bound=None):
    """Two actions whose features hardly differ, and whose outcomes do: μ is of norm 4.1/c."""
    P = np.zeros((H, S, A, S))
    P[:, :, 0], P[:, :, 1] = [0, 0.9, 0.1], [0, 0.1, 0.9]
    phi = np.zeros((S, A, 2))
    phi[:, 0], phi[:, 1] = [c, 0], [c, -0.2 * c]
    reward, utility, incumbent = (np.zeros((H, S, A)) for _ in range(3))
    reward[0, :, 1] = utility[1, 1] = incumbent[:, :, 0] = 1
    return es.LinearCMDP(P, reward, utility, phi, 0, 0.6, incumbent, slack=0.02, norm_bound=norm_bound)


def told(cmdp, **changes):
    """The task by itself, as one gives it who does not know P."""
    task = cmdp.task
    return es.Task(
        H, S, A, task.reward, changes.pop("phi", task.phi), 0, task.constraint, task.safe_policy, **changes
    )  # fmt: skip


def fresh(task):
    return es.OPSE(task, es.Constants.proposing(), certifier=es.certify.FreshData(0.05))


def test_small_features_do_not_lead_to_unsafe_deployments():
    cmdp = small_features()
    assert cmdp.linearity_gap() < 1e-14
    records = [es.run(cmdp, fresh(cmdp.task), 520, seed) for seed in range(100)]
    assert sum(record.violating().any() for record in records) == 0
    assert all(record.utility_values.min() < 0.899 for record in records)  # it does explore


def test_the_bounds_do_not_depend_on_the_scale_of_the_features():
    records = []
    for c in (0.9, 1e-3):
        cmdp = small_features(c)
        records.append(es.run(cmdp, es.OPSE(cmdp.task, _constants(c), certifier=es.certify.FreshData(0.05)), 3000))
    assert np.abs(records[0].utility_bounds - records[1].utility_bounds).max() < 1e-9


def _constants(c):
    return es.Constants.proposing().replace(ridge=0.05 * c**2)  # so that the planner does not see the scale either


@pytest.mark.parametrize("use", [fresh, lambda task: es.Constants.theory(task, 100)], ids=["fresh data", "theory"])
def test_features_that_no_kernel_fits_with_the_stated_bound_are_refused(use):
    with pytest.raises(es.Infeasible, match="at least 10, or use"):
        use(told(small_features()))
    use(told(small_features(), norm_bound=10.0))
    with pytest.raises(es.Infeasible, match="not linear"):  # φᵀw = 1 has no solution: P would not sum to 1
        use(told(small_features(), phi=[[[0.5], [1.0]]] * 3))


def test_a_run_refuses_an_agent_that_is_told_less_than_the_kernel_needs():
    cmdp = small_features()
    for task in (told(cmdp, norm_bound=41.0), told(cmdp, norm_bound=42.0)):
        agents = [fresh(task), es.OPSE(task, es.Constants.theory(task, 100))]
        for agent in agents:
            if task.norm_bound == 42.0:
                es.run(cmdp, agent, 10)
            else:
                with pytest.raises(es.Infeasible, match=r"norm_bound 41, and P needs 41\.231"):
                    es.run(cmdp, agent, 10)


def test_the_theorem_is_refused_where_the_kernel_is_not_linear():
    cmdp = small_features()
    with pytest.raises(es.Infeasible, match="not linear in the features, by"):
        task = told(cmdp, phi=np.ones((S, A, 1)))
        es.run(cmdp, es.OPSE(task, es.Constants.theory(task, 100)), 10)
    bent = es.LinearCMDP(cmdp.P, cmdp.task.reward, cmdp.task.utility, np.ones((S, A, 1)), 0, 0.6, slack=0.02)
    with pytest.raises(es.Infeasible, match="not linear"):  # a session has no kernel, but this task knows
        fresh(bent.task)


def test_a_problem_tells_the_bound_that_its_kernel_needs():
    assert math.isclose(small_features().task.norm_bound, math.sqrt(17) / 0.1, rel_tol=1e-8)
    assert small_features(norm_bound=50.0).task.norm_bound == 50.0
    with pytest.raises(es.Infeasible, match=r"P needs 41\.23.*leave it out"):
        small_features(norm_bound=41.0)
    for env, dim in (("linear", 5), ("tabular", 15), ("streaming", 12)):  # the paper's own: no bit changes
        assert es.make(env).task.norm_bound == math.sqrt(dim)


def test_the_bound_holds_for_every_function_and_is_that_of_probability_laws():
    rng = np.random.default_rng(0)
    vertices = np.array(list(itertools.product((0.0, 1.0), repeat=6)))
    for _ in range(50):
        phi = rng.dirichlet(np.ones(3), (6, 2)) @ rng.normal(size=(3, 3))
        rows = phi.reshape(12, 3) @ np.linalg.pinv(phi.reshape(12, 3)) @ rng.dirichlet(np.ones(6), 12)
        P = rows.reshape(1, 6, 2, 6)  # linear; some rows are no laws, which the bound does not need
        exact = np.linalg.norm(vertices @ measures(P, phi)[0].T, axis=1).max()
        assert exact <= least_norm_bound(P, phi) * (1 + 1e-12) <= 2 * exact
    phi, laws = rng.dirichlet(np.ones(3), (6, 2)), rng.dirichlet(np.ones(6), (1, 3))
    turned = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    for features in (phi, phi @ turned):
        assert math.isclose(least_norm_bound((phi @ laws[0])[None], features), math.sqrt(3), rel_tol=1e-12)


def test_the_theorems_constant_covers_small_features():
    """|(P̂ − P)V| ≤ C_u β after 10⁷ average episodes of the incumbent, not so with the paper's √d."""
    c, n = 1e-3, 10**7
    cmdp = small_features(c)
    gram_inv = np.linalg.inv(np.eye(2) + n * np.outer([c, 0], [c, 0]))
    risky = np.array([c, -0.2 * c])
    error = risky @ gram_inv @ (n * 0.9 * np.array([c, 0])) - 0.1
    beta = math.sqrt(risky @ gram_inv @ risky)
    proved = es.Constants.theory(cmdp.task, n)
    papers = theorem(Sizes(H, A, 2, cmdp.task.slack, n, 0.05))
    assert math.exp(papers.C_u) * beta < error / 2 < error < proved.C_u * beta


def test_the_statements_say_it():
    cmdp = small_features()
    said = fresh(cmdp.task).settings()
    assert "norm_bound · max g" in said["statement"] and said["norm_bound"] == cmdp.task.norm_bound
    assert f"{cmdp.task.norm_bound:.12g} · max g" in es.Constants.theory(cmdp.task, 100).statement


def test_files_and_journals_keep_it(tmp_path):
    cmdp = small_features(norm_bound=50.0)
    cmdp.save(tmp_path / "problem.npz")
    assert es.LinearCMDP.load(tmp_path / "problem.npz").task.norm_bound == 50.0
    with es.open(tmp_path / "live", agent=fresh(cmdp.task)) as session:
        session.deploy(np.random.default_rng(0))
    assert es.audit(tmp_path / "live").recomputed is not None  # by an agent that was built from the folder
    assert fresh(cmdp.task).fingerprint() != fresh(small_features().task).fingerprint()


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, "much"])
def test_a_bound_that_is_none_is_refused(wrong):
    with pytest.raises(es.InvalidProblem, match="norm_bound must be"):
        told(small_features(), norm_bound=wrong)
