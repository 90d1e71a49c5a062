"""V4.1's store, by its own test.

Fail-to-pass: on the base a key that rounds to -0 is NaN for its reader.
"""

from __future__ import annotations

from trees import v41

test_v41 = v41.test_indexer_k_store_roundtrips_through_rocm_gather
