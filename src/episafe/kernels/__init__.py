"""Compiled functions on plain arrays; only this package knows numba and LLVM."""
