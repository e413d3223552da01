"""What an environment says of itself beside its spaces: its own time limit, and those it is made of."""

from typing import Any

from episafe.errors import InvalidProblem


def check_time_limit(env: Any, horizon: int) -> None:
    """Refuse a limit of its own that is not the horizon."""
    for one in sub_environments(env) or (env,):
        limit = _time_limit(one)
        if limit is not None and limit != horizon:
            raise InvalidProblem(
                f"the environment's own time limit is {limit} steps and the horizon {horizon}: the constraint is on "
                f"whole episodes, so make it with gymnasium.make(…, max_episode_steps={horizon}), or give "
                f"horizon={limit}; if a wrapper of yours repeats steps, wrap env.unwrapped, which has no limit"
            )


def _time_limit(env: Any) -> Any:
    """That of `gymnasium.make`, which `make_vec` leaves in the arguments of the spec; else of the wrapper TimeLimit."""
    spec = getattr(env, "spec", None)
    given = (getattr(spec, "kwargs", None) or {}).get("max_episode_steps")
    limit = getattr(spec, "max_episode_steps", None) if given is None else given
    while limit is None and env is not None:
        limit = getattr(env, "_max_episode_steps", None) if type(env).__name__ == "TimeLimit" else None
        env = getattr(env, "env", None)
    return limit


def sub_environments(env: Any) -> tuple[Any, ...]:
    """The environments in a vector environment, where they are in this process."""
    return tuple(getattr(env.unwrapped, "envs", ())) if hasattr(env, "num_envs") else ()
