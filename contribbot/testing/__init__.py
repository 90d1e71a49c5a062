"""The library for checks: `from contribbot.testing import import_file`.

A check runs the tree's real code. That code imports the rest of SGLang or vLLM, and packages that
are not installed where you test. `import_file` imports the one file that you name:

```python
from contribbot.testing import answers, import_file

area = import_file("python/sglang/srt/layers/layernorm.py")

layernorm = import_file(
    "python/sglang/srt/layers/layernorm.py",
    real=["sglang.srt.layers.utils"],
    given={
        "sglang.srt.utils": {
            **answers("is_cuda", "is_cpu", "is_npu", "is_xpu", answer=False),
            **answers("is_hip", answer=True),
        },
    },
)
```

All other modules of the tree, and every package that is not installed, are *stand-ins*. Whatever
the file imports from them is there, so that it can be imported. As soon as the check would
depend on one (calls it, decides by it, computes with it, makes an object of a class below it), it
refuses with `StandInError`, which names module and attribute, and the two ways on:

- `real`: modules of the tree to import for real, with what lies below them;
- `given`: what a module has instead. All else of it stays a stand-in.

`contribbot verify` takes a `StandInError` for a check that could not run (*unavailable*), never
for a check that is red. An import in a `try` that handles `ImportError` fails, as it does where
the package is not installed. PyTorch's files are imported as they are, with the installed torch.

Beside it:

- `tree()`: the folder of the tree under test.
- `answers(…, answer=…)`: functions that give one answer, for `given`.
- `expect_device("cuda")`: a block in which nothing may run on the CPU, or be copied from or to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contribbot.importing import UnwrittenCheckError, answers, import_file, tree, unwritten
from contribbot.stand_in import StandInError

if TYPE_CHECKING:
    from contribbot.fallback.audit import expect_device

__all__ = [
    "StandInError",
    "UnwrittenCheckError",
    "answers",
    "expect_device",
    "import_file",
    "tree",
    "unwritten",
]


def __getattr__(name: str) -> object:
    """Import `expect_device`, which needs torch, at its first use."""
    if name != "expect_device":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from contribbot.fallback.audit import expect_device  # noqa: PLC0415  torch takes seconds

    return expect_device
