"""Exogenous problems: traces judge every policy as the kernel does, worlds draw them, journals keep them."""

from dataclasses import dataclass, replace
from itertools import product

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import episafe as es
from episafe.envs.battery import Battery
from episafe.envs.cloud import Cloud
from episafe.envs.gymnasium import RulesEnv
from episafe.envs.inventory import Inventory
from episafe.problems.listed_move import ListedMove, chance_key
from episafe.problems.rules import Rules, _explored, _outcomes, listed
from episafe.problems.states import ENDED, START
from episafe.testing.assertions import require_no_path

SMALL = {"inventory": Inventory(mean_demand=2.0), "battery": Battery(), "cloud": Cloud()}


class Traced(es.Fixed):
    """A policy, never changed, whose episodes say what chance brought; it keeps them."""

    uses_traces = True

    def learn(self, *report, plan_id=None):
        super().learn(*report, plan_id=plan_id)
        self.__dict__.setdefault("seen", []).extend(report)


@dataclass(frozen=True)
class Mood(Rules):
    """A shop of 0 to 2 loaves and a mood of the town, which wanders by itself: it is the state's own, and exogenous."""

    horizon: int = 3
    num_actions: int = 2
    shape: tuple[int, ...] = (3, 2)
    start: tuple[int, ...] = (1, 0)
    swayed: bool = False  # whether a full shelf lifts the mood

    def chances(self, h, state):
        up = 0.3 + 0.4 * state[1]
        if self.swayed and state[0] == 2:
            up = 0.9
        return [((0, 1), (1 - up, up)), ((0, 1), (0.5 - 0.1 * h, 0.5 + 0.1 * h))]

    def move(self, h, state, action, luck):
        mood, bought = luck
        stock = min(state[0] + action, 2)
        sold = min(stock, bought * (1 + state[1]))
        return (stock - sold, mood), sold / 2, float(stock > 0)

    def incumbent(self, h, state):
        return np.array([0.2, 0.8])


def all_traces(cmdp, action=0):
    """Every trace with its probability, walked with one action."""
    law, move, H = cmdp.law.law, cmdp.task.move, cmdp.task.horizon
    for which in product(range(len(move.values)), repeat=H):
        state, probability = cmdp.task.initial_state, 1.0
        for h, i in enumerate(which):
            probability *= law[move.row(h), state, i]
            if probability == 0:
                break
            state = move(h, state, action, move.values[i])[0]
        else:
            yield (cmdp.task.initial_state, tuple(move.values[i] for i in which)), probability


def on_trace(task, table, trace):
    """Expected reward and utility of a table on a trace, by going through all actions."""
    total = np.zeros(2)
    for actions in product(range(task.num_actions), repeat=task.horizon):
        episode = task.replay(task.safe_policy, trace, np.random.default_rng(0), actions=actions)
        chance = np.prod([table[h, episode.states[h], a] for h, a in enumerate(actions)])
        total += chance * np.array([episode.rewards.sum(), episode.utilities.sum()])
    return total


@pytest.mark.parametrize("name", SMALL)
def test_the_law_of_chance_pushed_through_move_is_the_kernel(name):
    """Straight from the rules: Σ_w ℙ(w) 1{move leads to s'} = P, and the means of reward and utility, to 1e-12."""
    rules = SMALL[name]
    cmdp = listed(rules, threshold=0.5 * rules.horizon)
    index, task = _explored(rules)[0], cmdp.task
    assert task.is_exogenous
    for (state, s), h in product(list(index.items())[::3], (0, rules.horizon // 2, rules.horizon - 1)):
        P, means = np.zeros((task.num_actions, task.num_states)), np.zeros((2, task.num_actions))
        for (luck, p), a in product(_outcomes(rules, h, state), range(task.num_actions)):
            following, reward, utility = task.move(h, s, a, luck)
            P[a, following] += p
            means[:, a] += p * reward, p * utility
        np.testing.assert_allclose(P, cmdp.P[h, s], atol=1e-12)
        np.testing.assert_allclose(means, [task.reward[h, s], task.utility[h, s]], atol=1e-12)


def test_every_trace_judges_every_policy():
    """Σ over all traces of ℙ(trace)·(value on the trace) = V(π), of a random policy, exactly."""
    cmdp = listed(Mood(), threshold=1.0)
    table = np.random.default_rng(3).dirichlet(np.ones(2), (3, cmdp.task.num_states))
    traces = list(all_traces(cmdp))
    assert sum(p for _, p in traces) == pytest.approx(1, abs=1e-12)
    value = sum(p * on_trace(cmdp.task, table, trace) for trace, p in traces)
    np.testing.assert_allclose(value, cmdp.evaluate(table), atol=1e-12)


def test_the_law_of_traces_does_not_depend_on_the_actions():
    cmdp = listed(Mood(), threshold=1.0)
    by_action = [{trace: p for trace, p in all_traces(cmdp, action)} for action in range(2)]
    assert by_action[0].keys() == by_action[1].keys()
    for trace, p in by_action[0].items():
        assert by_action[1][trace] == pytest.approx(p, abs=1e-15)


def test_chance_that_depends_on_what_was_done_is_not_exogenous():
    swayed = listed(Mood(swayed=True), threshold=1.0)
    assert not swayed.task.is_exogenous and swayed.law is None
    honest = listed(Mood(), threshold=1.0)
    move, law = honest.task.move, honest.law.law.copy()
    full = next(s for state, s in _explored(Mood())[0].items() if state[0] == 2)
    law[:, full] = law[:, full, ::-1]
    given = (honest.P, honest.task.reward, honest.task.utility)
    with pytest.raises(es.InvalidProblem, match="not exogenous"):
        es.LinearCMDP(*given, threshold=1.0, move=move, law=law)
    with pytest.raises(es.InvalidProblem, match="belong together"):
        es.LinearCMDP(*given, threshold=1.0, move=move)


def test_a_kernel_that_is_not_the_mean_of_the_moves_is_refused():
    cmdp = listed(Mood(), threshold=1.0)
    reward = np.array(cmdp.task.reward)
    reward[0, 0, 0] = 1 - reward[0, 0, 0]
    with pytest.raises(es.InvalidProblem, match="reward is not the mean"):
        es.LinearCMDP(
            cmdp.P, reward, cmdp.task.utility, threshold=1.0, move=cmdp.task.move, law=cmdp.law.law,
            initial_state=cmdp.task.initial_state,
        )  # fmt: skip


def test_the_papers_problems_have_no_traces():
    cmdp = es.make("streaming")
    assert not cmdp.task.is_exogenous
    with pytest.raises(es.InvalidProblem, match="not exogenous"):
        cmdp.draw_trace(np.random.default_rng(0))
    with pytest.raises(ValueError, match="the problem is not exogenous"):
        es.run(cmdp, Traced(cmdp.task, "incumbent"), 1)


@pytest.mark.parametrize("name", SMALL)
def test_no_path_leads_from_the_task_to_the_law(name):
    cmdp = es.make(name, 1)
    require_no_path(cmdp.task, [cmdp, cmdp.P, cmdp.law, cmdp.law.law])


@pytest.mark.parametrize("name", SMALL)
def test_worlds_draw_traces_for_those_who_use_them(name):
    """400 episodes of the uniform policy: each as its trace says; means within 4 standard errors of the exact ones."""
    cmdp = es.make(name, 1)
    agent = Traced(cmdp.task, "uniform")
    record = es.run(cmdp, agent, 400, seed=2)
    exact = cmdp.evaluate(agent.plan().policy)
    assert (record.reward_values[0], record.utility_values[0]) == exact
    totals = np.array([(episode.rewards.sum(), episode.utilities.sum()) for episode in agent.seen])
    error = totals.std(axis=0) / 20
    assert (np.abs(totals.mean(axis=0) - exact) < 4 * error).all()
    assert len({repr(episode.trace) for episode in agent.seen}) == 400
    for episode in agent.seen[:50]:
        assert cmdp.task.replay_fault(episode) == ""
        again = cmdp.task.replay(agent.plan().policy, episode.trace, np.random.default_rng(0), actions=episode.actions)
        np.testing.assert_equal(vars(again), vars(replace(episode, states=episode.states.tolist())))


def test_who_uses_no_traces_is_told_none():
    cmdp = es.make("inventory", 1)

    class Curious(Traced):
        uses_traces = False

    agent = Curious(cmdp.task, "uniform")
    es.run(cmdp, agent, 3, seed=2)
    assert [episode.trace for episode in agent.seen] == [None] * 3
    assert agent.seen[0].rewards is None


def test_a_wrong_episode_is_found_and_named():
    cmdp = es.make("inventory", 1)
    task, rng = cmdp.task, np.random.default_rng(0)
    right = task.replay(task.safe_policy, cmdp.draw_trace(rng), rng)
    assert task.replay_fault(right) == ""
    states, utilities = list(map(np.int64, right.states)), right.utilities.copy()
    states[4] = (states[4] + 1) % task.num_states
    utilities[6] += 1e-3
    said = task.replay_fault(replace(right, states=np.array(states)))
    assert said.startswith("at step 3, ") and said.endswith(f", and the episode has {states[4]}"), said
    assert task.replay_fault(replace(right, states=states)) == said
    assert "move gives the utility" in task.replay_fault(replace(right, utilities=utilities))
    start, chances = right.trace
    another = (start, (*chances[:5], (6 - chances[5][0],), *chances[6:]))
    assert task.replay_fault(replace(right, trace=another)).startswith("at step 5, ")
    impossible = (start, (*chances[:5], (99,), *chances[6:]))
    assert "move gives the utility 0.05" in task.replay_fault(replace(right, trace=impossible))  # 5 of 99 are served
    nonsense = (start, (*chances[:5], "rain", *chances[6:]))
    assert "at step 5, state 5, action 3: move fails" in task.replay_fault(replace(right, trace=nonsense))
    unseen = (start, (*chances[:5], None, *chances[6:]))
    assert task.replay_fault(replace(right, trace=unseen, states=states)).startswith("at step 3, ")
    assert task.replay_fault(replace(right, trace=unseen)) == ""


def test_what_was_not_seen_cannot_be_replayed():
    cmdp = es.make("inventory", 1)
    rng = np.random.default_rng(0)
    start, chances = cmdp.draw_trace(rng)
    with pytest.raises(es.InvalidEpisode, match="does not show what chance brought at step 2"):
        cmdp.task.replay(cmdp.task.safe_policy, (start, (*chances[:2], None, *chances[3:])), rng)
    with pytest.raises(es.InvalidEpisode, match=r"trace must be \(start, \(w_1, …, w_14\)\)"):
        cmdp.task.replay(cmdp.task.safe_policy, (start, chances[:-1]), rng)
    with pytest.raises(es.InvalidEpisode, match="the trace starts at"):
        cmdp.task.check_report(es.Episode([0] * 15, [0] * 14, trace=(start + 1, chances)))
    with pytest.raises(es.InvalidProblem, match="nobody said how the system moves"):
        es.make("streaming").task.replay(es.make("streaming").task.safe_policy, (0, (1, 1, 1, 1)), rng)


def test_a_mixture_is_replayed_by_one_component():
    cmdp = es.make("inventory", 1)
    task, rng = cmdp.task, np.random.default_rng(0)
    low, high = (es.TablePolicy(np.tile(np.eye(4)[a], (14, task.num_states, 1))) for a in (0, 3))
    drawn = [task.replay(es.MixturePolicy((low, high), (0.5, 0.5)), cmdp.draw_trace(rng), rng) for _ in range(20)]
    assert {(e.component, a) for e in drawn for a in e.actions.tolist()} == {(0, 0), (1, 3)}


def test_a_problem_keeps_its_moves_in_a_file(tmp_path):
    cmdp = es.make("cloud", 1)
    cmdp.save(tmp_path / "cloud.npz")
    again = es.LinearCMDP.load(tmp_path / "cloud.npz")
    assert again.task.move.values == cmdp.task.move.values
    np.testing.assert_array_equal(again.task.move.next_states, cmdp.task.move.next_states)
    np.testing.assert_array_equal(again.law.law, cmdp.law.law)
    assert again.draw_trace(np.random.default_rng(3)) == cmdp.draw_trace(np.random.default_rng(3))
    told = es.Task.from_arrays(cmdp.task.as_arrays())
    start, (w, *_) = cmdp.draw_trace(np.random.default_rng(3))
    assert told.move(0, start, 1, w) == cmdp.task.move(0, start, 1, w)
    assert replace(cmdp.task, move=lambda *_: None).as_arrays() is None  # a function cannot be written down


def test_a_run_with_traces_is_taken_up_bit_for_bit(tmp_path):
    cmdp = es.make("inventory", 1)
    whole, part, rest = (Traced(cmdp.task, "uniform") for _ in range(3))
    record = es.run(cmdp, whole, 60, seed=4)
    es.run(cmdp, part, 25, seed=4, folder=tmp_path)
    again = es.resume(tmp_path, 60, cmdp=cmdp, agent=rest)
    np.testing.assert_array_equal(record.reward_values, again.reward_values)
    for ours, theirs in zip(whole.seen, rest.seen, strict=True):
        np.testing.assert_equal(vars(ours), vars(theirs))


class Queue(gymnasium.Env):
    """Customers come, 0 to 2; a = 1 serves one. The shop closes at once when three wait. The start may be random."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, random_start=False, silent=()):
        self.random_start, self.silent = random_start, silent

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.h = int(self.np_random.integers(2)) * self.random_start, 0
        return self.state, {}

    def step(self, action):
        came = int(self.np_random.integers(3))
        following, reward, utility = move_queue(self.h, self.state, int(action), came)
        self.h += 1
        info = {"utility": utility} | ({} if self.h - 1 in self.silent else {"chance": came})
        self.state = 3 if following is ENDED else following
        return self.state, reward, following is ENDED, self.h == 5, info


def move_queue(h, state, action, came):
    following = max(state - action, 0) + came
    return (ENDED if following >= 3 else following), 0.5 * came, 1.0 - 0.5 * action


def queue(env, **options):
    given = {"horizon": 5, "threshold": 1.0, "slack": 0.5, "features": es.features.OneHot(), "move": move_queue}
    return es.from_gymnasium(env, safe_policy=lambda h, s: np.array([0.5, 0.5]), **given | options)


@pytest.mark.parametrize("random_start", [False, True])
def test_a_live_environment_records_what_chance_brought(random_start):
    problem = queue(Queue(random_start), random_start=random_start)
    task, rng = problem.task, np.random.default_rng(0)
    problem.seed(0)
    ended = 0
    for _ in range(30):
        episode = es.play(problem, task.safe_policy, rng)
        start, chances = episode.trace
        assert len(chances) == 5 and (episode.states[0] is START) == random_start
        assert start == episode.states[int(random_start)]
        last = episode.states.index(ENDED) - int(random_start) if ENDED in episode.states else 5
        assert [w is None for w in chances] == [False] * last + [True] * (5 - last)  # after the end nobody looks
        ended += last < 5
        assert task.replay_fault(episode) == ""
        again = task.replay(task.safe_policy, episode.trace, rng, actions=episode.actions)
        np.testing.assert_equal((again.states, again.utilities), (episode.states, episode.utilities))
    assert 5 < ended < 30


@pytest.mark.parametrize("mode", AutoresetMode)
def test_environments_side_by_side_record_it_too(mode):
    def make():
        return Telling(Queue(), lambda info: {**info, "chance": (info["chance"],)})

    env = SyncVectorEnv([make] * 3, autoreset_mode=mode)
    problem = queue(env, move=lambda h, state, action, w: move_queue(h, state, action, *w))
    problem.seed(1)
    for _ in range(5):
        for episode in es.play_batch(problem, [problem.task.safe_policy] * 3, np.random.default_rng(0)):
            assert episode.trace[1][0] is not None
            assert problem.task.replay_fault(episode) == ""


class Telling(gymnasium.Wrapper):
    """An environment that says something else in its infos."""

    def __init__(self, env, tell):
        super().__init__(env)
        self.tell = tell

    def step(self, action):
        *rest, info = self.env.step(action)
        return *rest, self.tell(info)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("first", "others", "is_safe"),
    [
        (0, 0.75, False),
        (False, 0.75, False),
        (np.int8(0), 0.75, False),
        (np.float32(0), 0.1, False),
        (np.array([0, 1]), np.array([0.75, 1.0]), False),
        (np.array([0, 1], dtype=np.float32), np.array([0.1, 1.0]), False),
        (0.0, 0.1, True),
        (np.float64(0), 0.1, True),
        (np.array([0.0, 1.0]), np.array([0.1]), False),
        (0.0, None, True),
        (None, 0.1, True),
        ((0,), (0.1,), True),
        ("none", "many", True),
    ],
)
def test_what_chance_brought_side_by_side_is_what_was_told_or_is_refused(mode, first, others, is_safe):
    """Gymnasium makes an array of the type of the first value, to which it cuts all others."""
    told = [first, others, others]
    make = [lambda w=w: Telling(Queue(), lambda info: {**info, "chance": w}) for w in told]
    problem = queue(SyncVectorEnv(make, autoreset_mode=mode), move=lambda h, s, a, w: (0, 0.5, 0.5))
    playing = problem.episodes([problem.task.safe_policy] * 3, np.random.default_rng(0))
    if not is_safe:
        with pytest.raises(es.InvalidProblem, match=r'infos\["chance"\] at step 1 .* report float\(w\) or, .* a tuple'):
            list(playing)
        return
    for episode, w in zip(playing, told, strict=True):
        np.testing.assert_array_equal(episode.trace[1][0], w)


def test_an_environment_that_is_silent_at_a_step_leaves_a_gap():
    problem = queue(Queue(silent=(1,)))
    episode = es.play(problem, problem.task.safe_policy, np.random.default_rng(0))
    assert episode.trace[1][1] is None and episode.trace[1][0] is not None


def test_without_a_move_there_is_no_trace():
    problem = queue(Queue(), move=None)
    assert not problem.task.is_exogenous
    assert es.play(problem, problem.task.safe_policy, np.random.default_rng(0)).trace is None


def test_a_move_to_what_is_no_observation_is_refused():
    problem = queue(Queue(), move=lambda h, s, a, w: (17, 0.5, 0.5))
    with pytest.raises(es.InvalidProblem, match=r"observation 17 of move is not in the observation space"):
        problem.task.replay(problem.task.safe_policy, (0, (0,) * 5), np.random.default_rng(0))
    problem = queue(Queue(), move=lambda h, s, a, w: (0, 2.0, 0.5))
    with pytest.raises(es.InvalidProblem, match=r"gives reward 2.0 and utility 0.5: both must lie in \[0, 1\]"):
        problem.task.replay(problem.task.safe_policy, (0, (0,) * 5), np.random.default_rng(0))


def test_dicts_of_chance_are_kept_alone_and_refused_side_by_side():
    class Told(gymnasium.Wrapper):
        def step(self, action):
            *rest, info = self.env.step(action)
            return *rest, {**info, "chance": {"came": info["chance"]}}

    def move(h, state, action, w):
        return move_queue(h, state, action, w["came"])

    problem = queue(Told(Queue()), move=move)
    assert problem.task.replay_fault(es.play(problem, problem.task.safe_policy, np.random.default_rng(0))) == ""
    side_by_side = queue(SyncVectorEnv([lambda: Told(Queue())] * 2), move=move)
    with pytest.raises(es.InvalidProblem, match="report a number or a tuple"):
        es.play_batch(side_by_side, [problem.task.safe_policy] * 2, np.random.default_rng(0))


def test_rules_of_any_size_are_exogenous_by_their_own_move(tmp_path):
    shop = Inventory(mean_demand=6.0, max_demand=15, levels=(24, 28, 32, 36, 40), lead_time=3, variation=0.2)
    env = RulesEnv(shop)

    def new():
        return es.from_gymnasium(
            RulesEnv(shop), features=es.features.OneHot(lambda s: int(s.sum()) // 8, size=20), horizon=14,
            threshold=12.6, slack=1.3, safe_policy=lambda h, s: shop.incumbent(h, s), move=env.move,
        )  # fmt: skip

    problem = new()
    agent = Traced(problem.task, "incumbent")
    es.run(problem, agent, 5, seed=1, folder=tmp_path)
    assert [problem.task.replay_fault(episode) for episode in agent.seen] == [""] * 5
    again = new()
    rest = Traced(again.task, "incumbent")
    es.resume(tmp_path, 8, cmdp=again, agent=rest)  # traces come back from the journal
    for ours, theirs in zip(agent.seen, rest.seen, strict=False):
        np.testing.assert_equal(ours.trace, theirs.trace)


def bakery(**options):
    """A shelf of 0 to 5; what is asked for follows yesterday's demand."""

    def move(h, state, action, w):
        stock = min(state + action, 5)
        return stock - min(stock, w), min(stock, w) / 5, float(stock >= w)

    def chance(h, past, rng):
        return int(rng.binomial(3, 0.7 if past and past[-1] > 1 else 0.3))

    given = {"features": lambda s: np.eye(3, 18, 3 * s), "reward": None, "utility": None, "sample": None}
    known = {"horizon": 4, "num_actions": 3, "initial_state": 2, "threshold": 1.0, "slack": 0.1}
    known |= {"safe_policy": lambda h, s: np.array([0.0, 0.5, 0.5]), "move": move, "chance": chance}
    return es.SampledCMDP(**given | known | options)


def test_a_problem_by_functions_may_be_exogenous():
    problem = bakery()
    assert problem.task.is_exogenous and problem.task.unknown == ("reward", "utility")
    agent = Traced(problem.task, "incumbent")
    record = es.run(problem, agent, 20, seed=0)
    assert [problem.task.replay_fault(episode) for episode in agent.seen] == [""] * 20
    np.testing.assert_allclose(record.utility_totals, [episode.utilities.sum() for episode in agent.seen])
    learner = es.OPSE(problem.task, es.Constants.proposing(), certifier=es.certify.Observation())
    assert es.run(problem, learner, 20, seed=0).utility_totals.max() <= 4  # others play the same problem


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sample": lambda *_: 0}, "give one of them"),
        ({"chance": None}, "give one of them"),
        ({"move": None}, "chance needs move"),
    ],
)
def test_next_states_come_from_one_source(options, says):
    with pytest.raises(es.InvalidProblem, match=says):
        bakery(**options)


def test_a_move_beside_a_sampler_replays_traces_from_elsewhere():
    known = lambda h, s: np.full(3, 0.5)  # noqa: E731
    problem = bakery(chance=None, sample=lambda h, s, a, rng: 0, reward=known, utility=known)
    episode = problem.task.replay(problem.task.safe_policy, (2, (0, 1, 2, 3)), np.random.default_rng(0))
    assert problem.task.replay_fault(episode) == ""
    with pytest.raises(es.InvalidProblem, match="nobody said what chance brings"):
        problem.draw_trace(np.random.default_rng(0))


def test_values_of_chance_are_told_apart_by_what_they_are():
    assert chance_key(3) == chance_key(np.int64(3))
    assert chance_key([1, 2]) != chance_key([2, 1])
    assert chance_key(np.array([1.0])) == chance_key(np.array([1.0]))
    move = ListedMove(([1], [2]), np.zeros((1, 1, 1, 2), dtype=np.int64), np.zeros((1, 1, 1, 2)), np.ones((1, 1, 1, 2)))
    assert move(5, 0, 0, [2]) == (0, 0.0, 1.0)
    with pytest.raises(es.InvalidProblem, match="below 1, the number of states"):
        ListedMove((1,), np.full((1, 1, 1, 1), 3), np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)))
