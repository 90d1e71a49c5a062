#!/bin/sh
# Usage: sh reproduce.sh [CHECKOUT]
# A CHECKOUT must have below/*.patch applied.
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
tree=${1:-$here/tree}
if [ ! -e "$tree" ]; then
    git clone --quiet --depth 1 --branch v0.22.0 \
        https://github.com/vllm-project/vllm "$tree"
    git -C "$tree" apply "$here"/below/*.patch
fi
tree=$(cd "$tree" && pwd)
export CONTRIBBOT_TREE="$tree"
export PYTHONPATH="$tree"
export CHECK_GPU=gfx942
cd "$here/checks"
exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \
    'test_layer_gfx942.py::test_fp8[rows-float-torch.bfloat16]'
