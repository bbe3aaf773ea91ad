#!/usr/bin/env bash
# Sets up, builds, and trains ResNet-50: on the GPU if there is one, else a smaller run on the CPU.
#
#   scripts/quickstart.sh [OPTION...]     options of `nearmetal run`, which replace those chosen here
#   scripts/quickstart.sh --help          this text
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

nearmetal=$root/build/nearmetal

build() {
  local preset=$1 tests=()
  # The tests need more packages; a folder that builds them goes on doing so.
  if [[ ! -f $root/build/CMakeCache.txt ]]; then tests=(-DNEARMETAL_TESTS=OFF); fi
  configure "$preset" "${tests[@]}" >&2
  (cd "$root" && cmake --build --preset "$preset") >&2
}

# Under a minute on two cores, the build not counted.
run_on_cpu() {
  say "ResNet-50 in fp32 on the CPU, batch 4, images of 224x224, about 15 s of steady state"
  "$nearmetal" run --device cpu --batch 4 --duration 15
}

runs_on_gpu() { [[ $1 == gpu* ]] && gpu_visible; }

run_main_job() {
  local preset=$1
  if runs_on_gpu "$preset"; then
    say "ResNet-50 in fp16 on the GPU, batch 256, images of 224x224, about 20 s of steady state"
    "$nearmetal" run
  elif [[ $preset == gpu-only ]]; then
    die "no GPU to run on, and no CPU backend without oneDNN; the program is $nearmetal"
  else
    if gpu_visible; then say "there is a GPU, but not all that it takes to build for it: see above"; fi
    run_on_cpu
  fi
}

say_what_next() {
  local preset=$1 small=
  if ! runs_on_gpu "$preset"; then small=' --model resnet18 --image-size 64 --batch 4'; fi
  cat >&2 <<TEXT

The report is the file named above. Next:
  build/nearmetal run$small --profile
      where the time of a step goes
  build/nearmetal run$small --verify
      proof that the loss falls
  build/nearmetal run$small --repeats 5
      several starts, as a comparison needs
  build/nearmetal run --help
      all options
TEXT
}

main() {
  local preset
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,/^set /{/^#/{s/^# \{0,1\}//;p}}' "${BASH_SOURCE[0]}"
    return
  fi
  preset=$("$root/scripts/setup.sh")
  build "$preset"
  if (($#)); then
    exec "$nearmetal" run "$@"
  fi
  run_main_job "$preset"
  say_what_next "$preset"
}

main "$@"
