# Shared by the scripts beside it: sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$(basename "$0" .sh)

# clang-format and clang-tidy from PyPI; all checkouts share them.
lint_tools=${XDG_CACHE_HOME:-$HOME/.cache}/nearmetal/lint
daemons=${XDG_CACHE_HOME:-$HOME/.cache}/nearmetal/daemons # for tests, not installed
consumers=${XDG_CACHE_HOME:-$HOME/.cache}/nearmetal/consumers # what judges in tests

say() { printf '%s: %s\n' "$name" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Prints the path of nvcc; fails where there is none.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" \
    "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc; do
    if [[ -x $candidate ]]; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

gpu_visible() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/nvidiactl || -e /dev/dxg ]]; }

# configure PRESET [-DNAME=VALUE...]: ccache and an nvcc that is not on PATH are used where present.
configure() {
  local nvcc
  if nvcc=$(find_nvcc); then export CUDACXX=$nvcc; fi
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
    # Another checkout of the same sources finds what this one compiled.
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
    export CCACHE_DEPEND=1 # takes headers from the compiler, and so preprocesses nothing itself
    # Without this ccache caches nothing that uses a precompiled header.
    export CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
  (cd "$root" && cmake --preset "$@")
}
