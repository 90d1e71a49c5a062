"""V4's store, by its own test, which compares bytes.

Fail-to-pass: on the base they are not those of the platform's format. FP8 only: the MXFP4 cache
is NVIDIA's.
"""

from __future__ import annotations

import pytest
from trees import v4

test_v4 = v4.test_fused_kv_insert_indexer
_others = [mark for mark in test_v4.pytestmark if mark.args[0] != "use_fp4"]
test_v4.pytestmark = [*_others, pytest.mark.parametrize("use_fp4", [False]).mark]
