#!/bin/sh
# Usage: sh reproduce.sh [CHECKOUT]
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
tree=${1:-$here/tree}
if [ ! -e "$tree" ]; then
    git clone --quiet --depth 1 --branch v0.33.0 \
        https://github.com/vllm-project/vllm "$tree"
fi
tree=$(cd "$tree" && pwd)
export CONTRIBBOT_TREE="$tree"
export PYTHONPATH="$tree"
export CHECK_GPU=gfx942
cd "$here/checks"
exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \
    'test_layer_gfx942.py::test_silu_fusion[torch.bfloat16-64-rows-SiLU operator]'
