#!/usr/bin/env bash
# Feeds made-up bytes to the readers of reports, of mig-parted's files and of command lines of
# tf_cnn_benchmarks, under sanitizers.
#
#   scripts/fuzz.sh [SECONDS]     20 by default, all at once; new findings and corpus go to
#                                 build-debug/
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

seconds=${1:-20}
[[ $seconds =~ ^[0-9]+$ ]] || die "SECONDS must be a number: $seconds"
configure debug >/dev/null
cmake --build --preset debug --target report_fuzz mig_config_fuzz tf_flags_fuzz

# feed TARGET CORPUS...: 2 GiB and 10 s for one input, as memory and time are bounded, too.
feed() {
  local target=$1
  shift
  mkdir -p "build-debug/corpus-$target"
  "build-debug/$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=10 \
    -artifact_prefix=build-debug/ -print_final_stats=1 -verbosity=0 "build-debug/corpus-$target" "$@"
}

feed report_fuzz -dict=tests/fuzz/json.dict tests/fuzz/corpus tests/data &
fed=($!)
feed mig_config_fuzz tests/fuzz/yaml_corpus &
fed+=($!)
feed tf_flags_fuzz &
fed+=($!)
status=0
for one in "${fed[@]}"; do
  wait "$one" || status=$?
done
exit "$status"
