"""Errors that a caller can tell apart. The command line maps them to exit codes."""


class InvalidProblem(ValueError):
    """A problem or setting is malformed; the message names the value and the remedy."""


class Infeasible(InvalidProblem):
    """No policy reaches the limits, or the incumbent does not exceed them (exit code 3)."""


class InvalidEpisode(ValueError):
    """An episode does not fit its task; nothing was learned from it."""


class DamagedLog(ValueError):
    """A log, record or policy file is incomplete or was changed (exit code 4)."""
