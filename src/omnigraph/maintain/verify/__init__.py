"""Verify: the integrity of a graph, down to its bytes. Read-only.

Every check is one function; all problems are collected in one report, and a failed check is a
problem.
"""

from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem, VerifyReport, Weight
from omnigraph.maintain.verify.run import verify

__all__ = ["ProblemCode", "VerifyProblem", "VerifyReport", "Weight", "verify"]
