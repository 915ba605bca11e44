"""Checks that hold of every attention behind the library's interface, for ours and for anybody's."""

from sbmt.testing.kit import CHECKS, CheckResult, check_attention, run_attention_checks

__all__ = ["CHECKS", "CheckResult", "check_attention", "run_attention_checks"]
