"""V4's store, by the test that the patch changes, which gives the kernel the format.

Fail-to-pass: the base's kernel takes no format. FP8 only: the MXFP4 cache is NVIDIA's.
"""

from __future__ import annotations

import pytest
from v4_tree import upstream

test_v4 = upstream.test_fused_kv_insert_indexer
_others = [mark for mark in test_v4.pytestmark if mark.args[0] != "use_fp4"]
test_v4.pytestmark = [*_others, pytest.mark.parametrize("use_fp4", [False]).mark]
