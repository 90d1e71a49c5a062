"""A block of a check in which nothing may leave its device."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch

import torch

from contribbot.fallback.audit import Audit


@contextlib.contextmanager
def expect_device(device: torch.device | str, *, allow: Iterable[str] = ()) -> Iterator[None]:
    """Fail if an operator in the block runs elsewhere, or something is copied to or from the CPU.

    ```python
    with expect_device("cuda", allow=["aten::_local_scalar_dense", "*/sampling.py:*"]):
        layer(x).sum().backward()
    ```

    It is stricter than `contribbot fallback`: work of the CPU counts whatever its data is, and so
    does a single upload. Views and new tensors are no work. Watched are this thread, and
    autograd's where it works for this thread; nothing is known of what runs inside one operator or
    a compiled graph (docs/fallback.md).

    Args:
        device: Where all is to run: `"cuda"` (any such GPU, under ROCm too), `"cuda:1"`.
        allow: What may happen all the same: names of operators (`aten::nonzero`), or places
            (`path.py:12`), each a pattern as `fnmatch` takes it, `*` being any text.

    Raises:
        AssertionError: Something ran or was copied elsewhere: each operator with its line and how
            often; or no operator ran on the device at all, so that nothing is shown.
        ValueError: The device is the CPU, which nothing falls back from.
    """
    if torch.device(device).type == "cpu":
        raise ValueError("expect_device: name an accelerator; nothing falls back from the CPU")
    __tracebackhide__ = True
    audit = Audit(str(device), strict=True)
    patterns = [*allow]
    audit.push()
    try:
        yield
    finally:
        audit.pop()
    left = [
        f"{place.file}:{place.line}: {place.kind} {place.operator},"
        f" {counts.count} x: {linecache.getline(place.file, place.line).strip()}"
        for place, counts in audit.places.items()
        if not any(
            fnmatch(text, pattern)
            for pattern in patterns
            for text in (place.operator, f"{place.file}:{place.line}")
        )
    ]
    if left:
        raise AssertionError("\n  ".join([f"not all of it ran on {device}:", *left]))
    if not audit.gpu_operators:
        raise AssertionError(f"no operator ran on {device}, so nothing is shown")
