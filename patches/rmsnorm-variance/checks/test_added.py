"""The unit test of the layer that the patch adds.

Fail-to-pass: the base has the same test, and its layer counts the padded columns.
"""

from __future__ import annotations

from cpu_tests import GIVEN, REAL

from contribbot.testing import import_file

TestAdded = import_file(
    "test/registered/unit/layers/test_layernorm.py", real=REAL, given=GIVEN
).TestRMSNormVarHiddenSizeHip
