"""The test that the patch adds to SGLang, on a CPU with the stand-in for aiter.

Fail-to-pass: on the base the same test hands the kernels what they cannot read.
"""

from __future__ import annotations

from added_test import added_test

TestAdded = added_test()
