"""Cases to come."""

from tests.judge_cases.case import Case

CASES: list[Case] = []
