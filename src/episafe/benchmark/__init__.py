"""The benchmark: frozen problem sets, every agent on them, reference results, one page (docs/benchmark.md)."""

from episafe.benchmark.problem_sets import PROBLEM_SETS, VERSION, ProblemSet, problem_set

__all__ = ["PROBLEM_SETS", "VERSION", "ProblemSet", "problem_set"]
