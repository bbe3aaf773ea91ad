#!/usr/bin/env bash
# Feeds made-up bytes to the reader of reports, under sanitizers.
#
#   scripts/fuzz.sh [SECONDS]     60 by default; new findings and corpus go to build-debug/
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

seconds=${1:-60}
configure debug >/dev/null
cmake --build --preset debug --target report_fuzz
mkdir -p build-debug/corpus
# 2 GiB and 10 s for one input: memory and time are bounded, too.
build-debug/report_fuzz -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=10 \
  -dict=tests/fuzz/json.dict -artifact_prefix=build-debug/ -print_final_stats=1 -verbosity=0 \
  build-debug/corpus tests/fuzz/corpus tests/data
