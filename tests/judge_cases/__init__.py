"""Cases that measure the judge: small patches with the verdict that each has to get.

Each module holds one kind of case and names them in `CASES`; tests/test_judge_cases.py runs them.
"""
