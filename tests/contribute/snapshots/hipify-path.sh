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
cd "$here/checks"
exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \
    'test_links.py::test_a_header_beside_the_source[linked build]'
