"""Logs of live environments: CSV, Parquet and Minari teach what playing the same episodes teaches."""

import csv
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import episafe as es
from conftest import constants
from episafe.problems.states import Outside

H = 5


class Shop(gym.Env):
    """A walk that may end early; rewards in [−2, 2], costs in [0, 4], actions numbered from `first`."""

    def __init__(self, kind, random_start, first=0):
        self.kind, self.random_start = kind, random_start
        self.action_space = spaces.Discrete(3, start=first) if kind != "array" else spaces.MultiDiscrete([2, 2])
        self.observation_space = {
            "number": spaces.Discrete(40),
            "array": spaces.MultiDiscrete([40, 3]),
            "box": spaces.Box(-2.0, 50.0, (2,), np.float32),
            "pair": spaces.Tuple([spaces.Discrete(40), spaces.Discrete(3)]),
        }[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(5)) if self.random_start else 2
        return self.seen(), {"cost": 0.0}

    def seen(self):
        if self.kind == "number":
            return self.x
        if self.kind == "pair":
            return self.x, self.x % 3
        kind = np.int64 if self.kind == "array" else np.float32
        return np.array([self.x, self.x % 3 if kind is np.int64 else 0.1 * self.x], dtype=kind)

    def step(self, action):
        push = int(np.sum(action))
        self.x = min(self.x + 1 + push % 3, 39)
        ended = bool(self.np_random.random() < 0.15)
        return self.seen(), float(push % 3) - 1.5, ended, False, {"cost": 1.5 * (push % 3) + 0.5}


class Recorder(gym.Wrapper):
    """Keeps everything raw, episode by episode."""

    def __init__(self, env):
        super().__init__(env)
        self.kept = []

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        self.kept.append([[observation], [], [], [], [], [info["cost"]]])
        return observation, info

    def step(self, action):
        found = self.env.step(action)
        for kept, one in zip(self.kept[-1], (found[0], action, *found[1:4], found[4]["cost"]), strict=True):
            kept.append(one)
        return found


def recorded(kind, random_start, count=30):
    """A problem, the raw episodes of a random policy, and the same as the runner saw them."""
    env = Recorder(Shop(kind, random_start, first=7))
    features = (lambda s: np.array([0.02 * s[0], 0.1 * s[1]])) if kind == "box" else es.features.OneHot()
    A = 4 if kind == "array" else 3
    made = es.from_gymnasium(
        env,
        features=features,
        horizon=H,
        cost_limit=15.0,
        slack=1.0,
        safe_policy=lambda h, state: np.full(A, 1 / A),
        reward_range=(-2.0, 2.0),
        cost_range=(0.0, 4.0),
        random_start=random_start,
    )
    env.kept.clear()
    rng = np.random.default_rng(5)
    return made, env, [es.play(made, made.task.safe_policy, rng) for _ in range(count)]


def learned(made, episodes):
    """An agent that learned the episodes; any action counts as the first one where actions are alike."""
    agent = es.OPSE(made.task, constants())
    for one in episodes:
        alike = [isinstance(state, Outside) for state in one.states[:-1]]
        agent.learn(replace(one, actions=[0 if any_ else a for any_, a in zip(alike, one.actions, strict=True)]))
    return agent


def assert_same(one, other):
    assert one.plan().utility_bound == other.plan().utility_bound
    assert one.plan().source == other.plan().source
    np.testing.assert_array_equal(one.planner.information, other.planner.information)


def rows(made, env):
    """The raw episodes as rows, signals scaled as the task has them, early ends marked."""
    found = []
    for k, (observations, actions, rewards, ended, _, costs) in enumerate(env.kept):
        for t, action in enumerate(actions):
            row = {"episode": f"day {k}", "step": t, "action": made.task.reading.actions.number(action)}
            row |= {"reward": (rewards[t] + 2) / 4, "utility": 1 - costs[t + 1] / 4, "terminated": int(ended[t])}
            for name, state in (("state", observations[t]), ("next_state", observations[t + 1])):
                values = np.ravel(state).tolist()
                row |= {name: values[0]} if len(values) == 1 else {f"{name}_{i}": v for i, v in enumerate(values)}
            found.append(row)
    return found


@pytest.mark.parametrize("random_start", [False, True], ids=["fixed start", "random start"])
@pytest.mark.parametrize("kind", ["number", "array", "box"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_teaches_what_its_episodes_teach(kind, random_start, suffix, tmp_path):
    made, env, episodes = recorded(kind, random_start)
    path, table = tmp_path / f"log{suffix}", rows(made, env)
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(table), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
    agent = es.OPSE(made.task, constants())
    assert es.learn_log(agent, path) == len(episodes)
    assert_same(agent, learned(made, episodes))


def test_a_log_in_numbers_of_half_the_length_is_the_same(tmp_path):
    """As files hold float32: 0.1 is 0.1 in a CSV, and 0.10000000149 in Parquet."""
    made, env, _ = recorded("box", random_start=True)
    pyarrow, csv, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.csv", "pyarrow.parquet"))
    table = [row | {"reward": 0.7 * row["reward"], "utility": 0.7 * row["utility"]} for row in rows(made, env)]
    table = pyarrow.Table.from_pylist(table)
    kinds = [(one.name, pyarrow.float32() if one.name in ("reward", "utility") else one.type) for one in table.schema]
    half = table.cast(pyarrow.schema(kinds))
    csv.write_csv(half, tmp_path / "log.csv")
    parquet.write_table(half, tmp_path / "log.parquet")
    with es.open(None, agent=es.OPSE(made.task, constants())) as session:
        assert [es.learn_log(session, tmp_path / f"log.{kind}") for kind in ("csv", "parquet")] == [30, 0]


@dataclass
class EpisodeData:
    """The fields that Minari documents of an episode."""

    id: int
    observations: Any
    actions: Any
    rewards: Any
    terminations: Any
    truncations: Any
    infos: Any


class Dataset:
    """What is read of a Minari dataset."""

    def __init__(self, episodes):
        self.episodes = episodes

    def iterate_episodes(self):
        return iter(self.episodes)


def batched(values):
    if isinstance(values[0], tuple):
        return tuple(np.array(part) for part in zip(*values, strict=True))
    return np.array(values)


def documented(env, skip=0):
    """The raw episodes in Minari's documented form; `skip` infos of the reset are left out."""
    return Dataset([
        EpisodeData(k, batched(o), batched(a), np.array(r), np.array(d), np.array(t), {"cost": np.array(c[skip:])})
        for k, (o, a, r, d, t, c) in enumerate(env.kept)
    ])  # fmt: skip


@pytest.mark.parametrize("skip", [0, 1], ids=["infos of the reset too", "infos of steps only"])
@pytest.mark.parametrize("random_start", [False, True], ids=["fixed start", "random start"])
@pytest.mark.parametrize("kind", ["number", "array", "box", "pair"])
def test_a_dataset_of_minaris_form_teaches_what_its_episodes_teach(kind, random_start, skip):
    made, env, episodes = recorded(kind, random_start)
    agent = es.OPSE(made.task, constants())
    assert es.learn_log(agent, documented(env, skip)) == len(episodes)
    assert_same(agent, learned(made, episodes))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
@pytest.mark.parametrize("kind", ["number", "array", "box", "pair"])
def test_a_minari_dataset_teaches_what_its_episodes_teach(kind, data_format, tmp_path, monkeypatch):
    """Written and read by Minari itself, by object and by id."""
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py" if data_format == "hdf5" else "pyarrow")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    made, env, episodes = recorded(kind, True)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=k,
            observations=tuple(map(list, zip(*o, strict=True))) if kind == "pair" else o,
            actions=a,
            rewards=r,
            terminations=d,
            truncations=[*t[:-1], not d[-1]],
            infos={"cost": c},
        )
        for k, (o, a, r, d, t, c) in enumerate(env.kept)
    ]
    dataset = minari.create_dataset_from_buffers(
        "shop/incumbent-v0",
        buffers,
        observation_space=env.observation_space,
        action_space=env.action_space,
        data_format=data_format,
        description="the incumbent",
        author="a test",
        author_email="a@test",
        code_permalink="none",
        algorithm_name="incumbent",
    )
    for source in (dataset, "shop/incumbent-v0"):
        agent = es.OPSE(made.task, constants())
        assert es.learn_log(agent, source) == len(episodes)
        assert_same(agent, learned(made, episodes))


def test_a_minari_dataset_warm_starts_a_known_problem():
    """States and actions are all that is read where the task tells the signals; 500 episodes spare the incumbent."""
    cmdp = es.make("streaming", seed=3010)
    H, rng = cmdp.task.horizon, np.random.default_rng(0)
    kept = []
    for k in range(500):
        states, actions = [cmdp.task.initial_state], []
        for h in range(H):
            actions.append(cmdp.task.safe_policy.act(h, states[-1], rng))
            states.append(int(rng.choice(cmdp.P.shape[1], p=cmdp.P[h, states[-1], actions[-1]])))
        flags = np.zeros(H, dtype=bool)
        kept.append(EpisodeData(k, np.array(states), np.array(actions), np.zeros(H), flags, flags, None))
    cold, warm = (es.OPSE(cmdp.task, es.Constants.paper("streaming"), es.Doubling(0.3)) for _ in range(2))
    assert es.learn_log(warm, Dataset(kept)) == 500
    deployed = [int(es.run(cmdp, agent, num_episodes=300).safe_deployments()[-1]) for agent in (cold, warm)]
    assert deployed[0] > 0
    assert deployed[1] == 0


def broken(**changes):
    """A change of the first episode that ends early, after 2 to 4 steps."""

    def change(env):
        dataset = documented(env)
        k = next(e.id for e in dataset.episodes if 2 <= len(e.rewards) < H)
        one = dataset.episodes[k]
        dataset.episodes[k] = replace(one, **{name: f(one) for name, f in changes.items()})
        return dataset

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (broken(infos=lambda e: {}), r'Minari episode \d+: info at step 0 has no "cost".*report'),
        (broken(infos=lambda e: None), 'has no "cost"'),
        (broken(infos=lambda e: e.infos | {"utility": e.infos["cost"]}), "both.*leave out"),
        (broken(infos=lambda e: {"cost": e.infos["cost"][:1]}), "1 entries for . steps: record one for each"),
        (broken(infos=lambda e: {"cost": e.infos["cost"] + 9}), "outside .0, 4.*cost_range"),
        (broken(infos=lambda e: {"cost": e.infos["cost"] * np.nan}), "cost at step 0 must be finite"),
        (broken(rewards=lambda e: e.rewards + 9), "reward at step 0 is .*reward_range"),
        (broken(observations=lambda e: e.observations[:-1]), "entries where . belong: record one"),
        (broken(observations=lambda e: e.observations + 60), "not in the observation space"),
        (broken(actions=lambda e: e.actions - 7), "action .* at step 0 is not in Discrete"),
        (broken(terminations=lambda e: e.terminations | True), "True at the last step only"),
        (broken(terminations=lambda e: e.terminations & False, truncations=lambda e: e.terminations), "leave out what"),
    ],
)  # fmt: skip
def test_a_damaged_dataset_is_refused_with_the_place_and_teaches_nothing(change, message):
    made, env, _ = recorded("number", False)
    agent = es.OPSE(made.task, constants())
    with pytest.raises(es.DamagedFile, match=message):
        es.learn_log(agent, change(env))
    np.testing.assert_array_equal(agent.planner.information, es.OPSE(made.task, constants()).planner.information)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: [row | {"terminated": 0} for row in table], "did not terminate: mark where"),
        (lambda table: [row | {"terminated": "perhaps"} for row in table], "'perhaps': write 1 or 0"),
        (lambda table: [row | {"terminated": 1} for row in table], "rows after it: leave them out"),
        (lambda table: [row | {"state": row["state"] + 90} for row in table], "not in the observation space"),
        (lambda table: [row | {"reward": ""} for row in table], "reward is '', not a number"),
    ],
)
def test_a_damaged_file_of_a_live_task_is_refused_with_the_place(change, message, tmp_path):
    made, env, _ = recorded("number", False)
    table = change(rows(made, env))
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
    agent = es.OPSE(made.task, constants())
    with pytest.raises(es.DamagedFile, match=message):
        es.learn_log(agent, tmp_path / "log.csv")
    np.testing.assert_array_equal(agent.planner.information, es.OPSE(made.task, constants()).planner.information)


def test_what_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    agent = es.OPSE(es.make("tabular").task, constants())
    with pytest.raises((ValueError, FileNotFoundError), match=r"episafe\[minari\]|minari download nobody/nothing-v3"):
        es.learn_log(agent, "nobody/nothing-v3")
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        es.learn_log(agent, "nothing.csv")
