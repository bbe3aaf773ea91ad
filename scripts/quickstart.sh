#!/usr/bin/env bash
# Sets up, builds what this machine runs, and trains ResNet-50: on the GPU if one is visible, else a
# smaller run on the CPU.
#
#   scripts/quickstart.sh [--all-chips] [OPTION...]
#   scripts/quickstart.sh --help
#
#   --all-chips   builds the CUDA backend for every chip, also where no GPU is visible (else for the
#                 GPUs that are visible, or not at all); comes first
#   OPTION        options of `nearmetal run`, which replace those chosen here
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

nearmetal=$root/build/nearmetal
cache=$root/build/CMakeCache.txt
every_chip=-UCMAKE_CUDA_ARCHITECTURES # an option of CMake, whose default is every chip

build() {
  local preset=$1 options=()
  shift
  # The tests need more packages; a folder that builds them goes on doing so.
  if [[ ! -f $cache ]]; then options=(-DNEARMETAL_TESTS=OFF); fi
  configure "$preset" "${options[@]}" "$@" >&2
  (cd "$root" && cmake --build --preset "$preset") >&2
}

# What the build folder builds already: a value of its cache, or nothing.
cached() { [[ ! -f $cache ]] || sed -n "s/^$1:[A-Z]*=//p" "$cache"; }

# preset_here PRESET: of the backends that can be built, those that this machine can use.
preset_here() {
  local preset=$1
  if gpu_visible || [[ $preset == cpu-only || $(cached NEARMETAL_CUDA) == ON ]]; then
    printf '%s\n' "$preset"
  elif [[ $preset == gpu-only ]]; then
    die "no GPU is visible, and there is no oneDNN for the CPU backend: --all-chips builds for GPUs"
  else
    say "no GPU is visible: building the CPU backend alone; --all-chips builds for GPUs, too"
    printf 'cpu-only\n'
  fi
}

# Prints the chips of the visible GPUs, as CMake names them, a line each. Fails where nvidia-smi does
# not tell, or where nvcc does not know one.
chips_here() {
  local nvcc known capabilities capability chip
  nvcc=$(find_nvcc)
  known=$("$nvcc" --list-gpu-code)
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u) || return 1
  for capability in $capabilities; do
    [[ $capability =~ ^[0-9]+\.[0-9]$ ]] || return 1
    chip=${capability/./}
    grep -qx "sm_$chip" <<<"$known" || return 1
    if [[ $chip == 90 ]]; then chip=90a; fi # whose own instructions the kernels use
    printf '%s-real\n' "$chip"
  done
  [[ -n $capabilities ]]
}

# Prints the option of CMake that adds the chips of the GPUs here to those of the build folder.
chip_option() {
  local chips chip wanted
  [[ -z ${CUDAARCHS:-} ]] || return 0 # who sets it has chosen
  if ! chips=$(chips_here); then
    say "nvidia-smi or nvcc does not know the chips of these GPUs: building for every chip"
    printf '%s\n' "$every_chip"
    return 0
  fi
  wanted=$(cached CMAKE_CUDA_ARCHITECTURES)
  for chip in $chips; do
    if [[ ! ";$wanted;" =~ \;${chip%-real}(-real)?\; ]]; then wanted+="${wanted:+;}$chip"; fi
  done
  say "building for the GPUs here (${wanted//;/, }); --all-chips builds for every chip"
  printf -- '-DCMAKE_CUDA_ARCHITECTURES=%s\n' "$wanted"
}

# Under a minute on two cores, the build not counted.
run_on_cpu() {
  say "ResNet-50 in fp32 on the CPU, batch 4, images of 224x224, about 10 s of steady state"
  "$nearmetal" run --device cpu --batch 4 --duration 10
}

runs_on_gpu() { [[ $1 == gpu* ]] && gpu_visible; }

run_main_job() {
  local preset=$1
  if runs_on_gpu "$preset"; then
    say "ResNet-50 in fp16 on the GPU, batch 256, images of 224x224, about 20 s of steady state"
    "$nearmetal" run
  elif [[ $preset == gpu-only ]]; then
    die "no GPU is visible, and there is no CPU backend without oneDNN; the program is $nearmetal"
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
  local preset options=()
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,/^set /{/^#/{s/^# \{0,1\}//;p}}' "${BASH_SOURCE[0]}"
    return
  fi
  preset=$("$root/scripts/setup.sh")
  if [[ ${1:-} == --all-chips ]]; then
    shift
    options=("$every_chip")
  else
    preset=$(preset_here "$preset")
    if runs_on_gpu "$preset"; then mapfile -t options < <(chip_option); fi
  fi
  build "$preset" "${options[@]}"
  if (($#)); then
    exec "$nearmetal" run "$@"
  fi
  run_main_job "$preset"
  say_what_next "$preset"
}

main "$@"
