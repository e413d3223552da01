"""What `step` of a vector environment returns, taken apart: one tuple a sub-environment, of the step it played.

A sub-environment whose episode is over is reset by Gymnasium itself, in one of three ways, which
`metadata["autoreset_mode"]` names:

    NextStep    the next call of `step` resets it; its action is ignored, the observation is a new start
    SameStep    the same call resets it; what belongs to the finished episode is in info["final_obs"] and
                info["final_info"], and the observation is a new start
    Disabled    nobody resets it; `reset(options={"reset_mask": …})` must, before the next step
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from episafe.errors import InvalidProblem

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
SIGNALS = ("utility", "cost")
UNCUT = (np.dtype(object), np.dtype(np.float64))  # of arrays in infos that hold what each sub-environment reported


def read_mode(env: Any) -> str:
    """The autoreset mode of a vector environment; one that it does not name, or that is not known, is refused."""
    found = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    mode: Any = getattr(found, "value", None)
    if mode not in (NEXT_STEP, SAME_STEP, DISABLED):
        raise InvalidProblem(
            f'the vector environment has metadata["autoreset_mode"] = {found!r}: set it to AutoresetMode.NEXT_STEP, '
            "SAME_STEP or DISABLED of gymnasium.vector, whichever it does (SyncVectorEnv and AsyncVectorEnv of "
            "Gymnasium 1.1 set it themselves)"
        )
    if mode == NEXT_STEP and getattr(env.unwrapped, "shared_memory", True) is False:
        raise InvalidProblem(
            "AsyncVectorEnv(shared_memory=False) in mode NEXT_STEP forgets that it was reset and swallows the first "
            "step of the next episode: use shared_memory=True, or another autoreset_mode"
        )
    return str(mode)


Wanted = Mapping[str, Sequence[str]]


def split(returned: Any, env: Any, mode: str, wanted: Wanted, place: str) -> list[tuple[Any, ...]]:
    """The tuples of the sub-environments, as `read_step` takes them, each of the episode that made the step.

    Their infos have what is `wanted`: "utility" and "cost", "chance"; of each signal that is a mapping these names.
    """
    N = env.num_envs
    size = len(returned) if isinstance(returned, tuple) else 0
    if size not in (5, 6):
        raise InvalidProblem(
            f"step {place} of a vector environment must return (observations, rewards, terminations, truncations, "
            f"infos), or six values with the costs third, got {size or type(returned).__name__}: return all of them"
        )
    names = ("rewards", "costs") if size == 6 else ("rewards",)
    numbers = [_each(name, part, N, place) for name, part in zip(names, returned[1:], strict=False)]
    flags = [_each(name, returned[i], N, place) for name, i in (("terminations", -3), ("truncations", -2))]
    observations, infos = unbatched(returned[0], env, place), returned[-1]
    if not isinstance(infos, dict):
        raise InvalidProblem(f"infos {place} must be a dict, got {type(infos).__name__}: return it last")
    found = []
    for i in range(N):
        observation, info, where = observations[i], infos, f"{place}, sub-environment {i}"
        if flags[0][i] or flags[1][i]:
            observation, info = _last(observation, infos, mode, i, N, where)
        of_one = _of_one(info, i, N, wanted, where)
        found.append((observation, *(part[i] for part in numbers), *(part[i] for part in flags), of_one))
    return found


def unbatched(observations: Any, env: Any, place: str) -> list[Any]:
    """A batch of observations as a list of N."""
    from gymnasium.vector.utils import iterate

    try:
        found = list(iterate(env.observation_space, observations))
    except Exception as error:  # what iterating over a wrong batch raises depends on the space
        raise InvalidProblem(
            f"observations {place} are no batch of {env.observation_space}: return one for each of {env.num_envs} "
            f"sub-environments ({type(error).__name__}: {error})"
        ) from error
    if len(found) != env.num_envs:
        raise InvalidProblem(
            f"there are {len(found)} observations {place}: return one for each of {env.num_envs} sub-environments"
        )
    return found


def sub_environments(env: Any) -> tuple[Any, ...]:
    """The environments in a vector environment, where they are in this process."""
    return tuple(getattr(env.unwrapped, "envs", ())) if hasattr(env, "num_envs") else ()


def _each(name: str, value: Any, N: int, place: str) -> Any:
    array = np.asarray(value)
    if array.shape != (N,):
        raise InvalidProblem(
            f"{name} {place} must have shape ({N},), one for each sub-environment, got {array.shape}: return an array"
        )
    return array


def _last(observation: Any, infos: dict[str, Any], mode: str, i: int, N: int, place: str) -> tuple[Any, dict[str, Any]]:
    """Observation and infos of an episode that ended in this step."""
    if mode != SAME_STEP:
        if "final_obs" in infos:
            raise InvalidProblem(
                f'infos {place} have "final_obs", as mode SAME_STEP has, and metadata["autoreset_mode"] is {mode}: '
                "set it to the mode that the vector environment has"
            )
        return observation, infos
    for name in ("final_obs", "final_info"):
        if name not in infos or not _mask(infos, name, N, place)[i]:
            raise InvalidProblem(
                f'the episode ended {place}, and infos have no "{name}" for it, which mode SAME_STEP needs: add it, or '
                'set metadata["autoreset_mode"] to the mode that the vector environment has'
            )
    if not isinstance(infos["final_info"], dict):
        raise InvalidProblem(
            f'infos["final_info"] {place} must be a dict of arrays with masks, as Gymnasium 1.1 makes it, got '
            f"{type(infos['final_info']).__name__}: convert it"
        )
    return infos["final_obs"][i], infos["final_info"]


def _of_one(infos: dict[str, Any], i: int, N: int, wanted: Wanted, place: str) -> dict[str, Any]:
    """What is wanted of what sub-environment i reported; Gymnasium makes a mapping of arrays of mappings."""
    found: dict[str, Any] = {}
    for name, names in wanted.items():
        if name not in infos or not _mask(infos, name, N, place)[i]:
            continue
        if name == "chance":
            found[name] = _chance(infos[name], i, place)
        elif names and isinstance(infos[name], dict):
            inside, where = infos[name], f'in infos["{name}"] {place}'
            told = [one for one in names if one in inside and _mask(inside, one, N, where)[i]]
            found[name] = {one: _number(inside, one, N, where)[i] for one in told}
        else:
            found[name] = _number(infos, name, N, place)[i]
    return found


def _number(infos: dict[str, Any], name: str, N: int, place: str) -> Any:
    """A signal of all sub-environments, (N,)."""
    values = _each(f'infos["{name}"]', infos[name], N, place)
    if values.dtype.kind in "biu":
        raise InvalidProblem(
            f'infos["{name}"] {place} has type {values.dtype}: report float({name}) in every sub-environment, '
            "since Gymnasium cuts the fractions of all if the first one reports a whole number"
        )
    return values


def _chance(values: Any, i: int, place: str) -> Any:
    """What chance brought to sub-environment i, None if it was not seen; refused where nobody can tell that it is what
    was reported.

    An array has the type and the shape of the first value. Objects are kept as they are, and a float holds what others
    say: None is NaN there.
    """
    if isinstance(values, dict):
        raise InvalidProblem(
            f'infos["chance"] {place} are dicts, which Gymnasium takes apart: report a number or a tuple'
        )
    if isinstance(values, np.ndarray) and (values.dtype not in UNCUT or values.ndim > 1):
        raise InvalidProblem(
            f'infos["chance"] {place} has type {values.dtype} and shape {values.shape}: report float(w) or, for '
            "whatever else it is, a tuple such as (w,) or tuple(w) in every sub-environment, since Gymnasium cuts what "
            "all report to the type and shape of the first"
        )
    told = deepcopy(values[i])
    return None if isinstance(told, float) and math.isnan(told) else told


def _mask(infos: dict[str, Any], name: str, N: int, place: str) -> Any:
    """Which sub-environments have this entry."""
    mask = infos.get(f"_{name}")
    if mask is None:
        raise InvalidProblem(
            f'infos {place} have "{name}" without the mask "_{name}", so that one left out would look like 0: add it, '
            f"a bool for each of {N} sub-environments"
        )
    return _each(f'infos["_{name}"]', mask, N, place)
