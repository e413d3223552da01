"""A `move` that is not how the environment moves: simulations say it, with monitors or without, and `episafe check`."""

import numpy as np
import pytest

import episafe as es
from episafe.envs.gymnasium import RulesEnv
from episafe.envs.inventory import Inventory
from episafe.tools.environment_check import check

RULES = Inventory(levels=(3, 5, 7, 9), horizon=6)


def opposite(following, reward, utility):
    return following, reward, 1 - utility


def raw(following, reward, utility):
    return following, 20 * reward, utility


def shop(wrong=None, says=True):
    """An inventory whose `move` is made wrong; `says`: whether it reports what chance brought."""

    class Env(RulesEnv):
        def step(self, action):
            *seen, info = super().step(action)
            return *seen, info if says else {name: one for name, one in info.items() if name != "chance"}

    env = Env(RULES)

    def move(h, state, action, w):
        moved = env.move(h, state, action, w)
        return moved if wrong is None else wrong(*moved)

    return es.from_gymnasium(
        env, horizon=6, threshold=0.8 * 6, slack=0.8, move=move, time_homogeneous=True,
        features=es.features.OneHot(lambda s: int(s.sum()) // 3, size=8),
        safe_policy=lambda h, state: RULES.incumbent(h, tuple(state)),
    )  # fmt: skip


@pytest.mark.parametrize("watched", (False, True))
@pytest.mark.parametrize("wrong", (opposite, raw))
def test_a_run_says_that_replays_were_refuted(wrong, watched, tmp_path):
    problem = shop(wrong)
    agent = es.OPSE(problem.task)
    monitors = es.Monitors(problem.task) if watched else None
    with pytest.warns(RuntimeWarning, match="replay: an episode is not what move makes of its trace: at step "):
        record = es.run(problem, agent, 12, monitors=monitors, folder=tmp_path)
    assert record.settings["alarms"].startswith("replay: an episode is not what move makes of its trace: at step ")
    audit = es.audit(tmp_path, agent=es.OPSE(problem.task))
    assert audit.damage == [] and [fault.startswith("replay: an episode") for fault in audit.faults] == [True]
    again = shop(wrong)
    with pytest.warns(RuntimeWarning, match="replay: an episode"):
        longer = es.resume(tmp_path, 15, cmdp=again, agent=es.OPSE(again.task))
    assert longer.settings["alarms"] == record.settings["alarms"]
    assert len(es.audit(tmp_path, agent=es.OPSE(problem.task)).faults) == 1


def test_a_right_move_is_not_blamed():
    problem = shop()
    record = es.run(problem, es.OPSE(problem.task), 12)
    assert "alarms" not in record.settings


def found(problem):
    (finding,) = [finding for finding in check(problem, 20) if finding.what == "move"]
    return finding.verdict, finding.found


def test_the_check_replays_the_episodes():
    verdict, said = found(shop())
    assert verdict == "ok" and said.startswith("20 episodes are what move makes of their traces")
    verdict, said = found(shop(opposite))
    assert verdict == "error" and "move gives the utility" in said and "mend move=" in said
    verdict, said = found(shop(raw))
    assert verdict == "error" and "both must lie in [0, 1]" in said
    verdict, said = found(shop(says=False))
    assert verdict == "warning" and said.startswith('in 20 of 20 episodes some step has no info["chance"]')


def test_the_check_says_nothing_of_a_move_that_nobody_gave():
    problem = es.from_gymnasium(
        RulesEnv(RULES), horizon=6, threshold=0.8 * 6, slack=0.8, safe_policy=lambda h, s: np.eye(4)[3],
        features=es.features.OneHot(lambda s: int(s.sum()) // 3, size=8),
    )  # fmt: skip
    assert not [finding for finding in check(problem, 5) if finding.what == "move"]
