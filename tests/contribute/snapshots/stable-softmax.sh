#!/bin/sh
# Needs torch==2.13.0 and pytest in the Python that PYTHON names.
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
cd "$here/checks"
exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \
    'test_precision.py::test_every_way_is_exact[eager-torch.float16]'
