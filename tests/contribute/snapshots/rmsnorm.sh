#!/bin/sh
# Usage: sh reproduce.sh [CHECKOUT]
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
tree=${1:-$here/tree}
if [ ! -e "$tree" ]; then
    git clone --quiet --depth 1 --branch v0.5.10.post1 \
        https://github.com/sgl-project/sglang "$tree"
fi
tree=$(cd "$tree" && pwd)
export CONTRIBBOT_TREE="$tree"
export PYTHONPATH="$tree"/python
export SGLANG_USE_AITER=1
cd "$here/checks"
exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \
    'test_layout.py::test_real_qk_views[q]'
