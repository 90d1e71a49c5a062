#!/bin/sh
# Usage: sh reproduce.sh [CHECKOUT]
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
tree=${1:-$here/tree}
if [ ! -e "$tree" ]; then
    git clone --quiet --depth 1 --branch v0.22.0 \
        https://github.com/vllm-project/vllm "$tree"
fi
tree=$(cd "$tree" && pwd)
export CONTRIBBOT_TREE="$tree"
export PYTHONPATH="$tree"
export CHECK_AWQ=csrc/libtorch_stable/quantization/awq/gemm_kernels.cu
cd "$here/checks"
exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \
    'test_paths.py::test_a_header_by_its_path_from_the_project[plain]'
