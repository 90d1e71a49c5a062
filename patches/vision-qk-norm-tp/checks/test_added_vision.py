"""The unit test of the layer's caller that the patch adds.

Fail-to-pass: on the base, where the JIT norm loads, it hands the layer one GPU's heads alone.
"""

from __future__ import annotations

import contextlib

from cpu_tests import GIVEN, REAL

from contribbot.testing import import_file

TestAddedVision = import_file(
    "test/registered/unit/layers/attention/test_vision_qk_norm.py",
    real=[*REAL, "sglang.srt.layers.attention.vision"],
    given=GIVEN
    | {
        "sglang.srt.distributed": {
            "split_tensor_along_last_dim": lambda x, num_partitions: x.chunk(num_partitions, -1),
        },
        "sglang.srt.utils.custom_op": {"register_custom_op": lambda *_, **__: lambda made: made},
        "sglang.srt.utils.multi_stream_utils": {
            "with_multi_stream": contextlib.nullcontext,
            "maybe_execute_in_parallel": lambda first, second, *_: (first(), second()),
        },
    },
).TestVisionQKNormTP
