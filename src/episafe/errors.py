"""Errors a caller can tell apart; the command line maps them to exit codes 3 and 4."""


class InvalidProblem(ValueError):
    """A problem that cannot be accepted; the message names the place and the remedy."""


class Infeasible(InvalidProblem):
    """No policy reaches the threshold, or the incumbent is not strictly above it (exit code 3)."""


class InvalidEpisode(ValueError):
    """An episode that does not fit its task; the learner's state is unchanged."""


class Contradiction(InvalidEpisode):
    """An episode that fits, and shows that what a certificate assumes is false: a session halts."""


class UnlistedChance(InvalidEpisode):
    """A trace with a value of chance of which nobody here knows what it does."""


class DamagedFile(ValueError):
    """A file that is missing a part, or holds what it should not (exit code 4)."""


class InUse(OSError):
    """A journal that another process has open; only one may write."""


class NotKept(OSError):
    """A report that is not on the disk: it was not acknowledged, and is to be made again after the cause is mended."""


def reason_of(error: Exception) -> str:
    """What an error says, and its kind where it is none of ours: of a function of somebody's own."""
    return str(error) if isinstance(error, InvalidProblem) else f"{type(error).__name__}: {error}"
