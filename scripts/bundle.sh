#!/usr/bin/env bash
# Builds one relocatable tarball and prints its path: unpack it on a node, run bin/nearmetal.
#
#   scripts/bundle.sh [--with-cuda] [--deb] [-DNAME=VALUE...]     options of CMake, too
#
# The build in build/ is packed where it is of this commit and these options; else it is built anew.
# It holds the program, its modules and the libraries that a plain node lacks. The driver, and CUDA
# and cuDNN but with --with-cuda (1 GB), come from the node. --deb: as a Debian package instead.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

most_bytes=$((60 * 1024 * 1024)) # without CUDA: to be copied to many VMs

pack_cuda=OFF generator=TGZ options=()
for argument; do
  case $argument in
    --with-cuda) pack_cuda=ON ;;
    --deb) generator=DEB ;;
    -D*) options+=("$argument") ;;
    *) die "unknown argument '$argument': there are --with-cuda, --deb and -D..." ;;
  esac
done

# The settings of a build folder that decide what is built.
settings() {
  local names='CMAKE_BUILD_TYPE|CMAKE_(CXX|CUDA)_(COMPILER|FLAGS[A-Z_]*|ARCHITECTURES)' option
  names+='|CMAKE_[A-Z]+_LINKER_FLAGS[A-Z_]*|CUDNN_[A-Z_]+|NCCL_[A-Z_]+'
  names+='|NEARMETAL_(CUDA|CPU|MPI|NCCL|PACK_CUDA|SANITIZE)'
  for option in "${options[@]}"; do
    option=${option#-D}
    names+="|${option%%[:=]*}"
  done
  grep -E "^($names):" "$1/CMakeCache.txt" | sed 's/:[A-Z]*=/=/' | sort
}

# Whether build/ holds what $build was configured for.
build_at_hand_serves() {
  local made=$root/build commit
  [[ -f $made/CMakeCache.txt && -x $made/nearmetal ]] || return 1
  commit=$(git -C "$root" rev-parse HEAD) || return 1
  [[ -z $(git -C "$root" status --porcelain --untracked-files=no) ]] || return 1
  "$made/nearmetal" --version | grep -qx "commit $commit" || return 1
  [[ $(settings "$made") == "$(settings "$build")" ]]
}

preset=$("$root/scripts/setup.sh")
if [[ $pack_cuda == ON && $preset == cpu-only ]]; then die "--with-cuda needs a CUDA toolkit"; fi
build=$root/build-bundle
configure "$preset" -B "$build" -DNEARMETAL_TESTS=OFF -DNEARMETAL_PACK_CUDA="$pack_cuda" \
  "${options[@]}" >&2
if build_at_hand_serves; then
  build=$root/build
  say "packing build/, which is of this commit and these options"
else
  cmake --build "$build" >&2
fi
rm -rf "$build/packages"
cpack -G "$generator" --config "$build/CPackConfig.cmake" -B "$build/packages" >&2

bundle=$(find "$build/packages" -maxdepth 1 -type f)
bytes=$(stat -c %s "$bundle")
if [[ $pack_cuda == OFF ]] && ((bytes > most_bytes)); then
  die "$bundle has $bytes bytes, more than $most_bytes"
fi
say "$((bytes / 1024 / 1024)) MiB"
staged=$build/packages/_CPack_Packages
if [[ -d $staged ]] && command -v python3 objdump > /dev/null; then
  say "needs of the node, at least:"
  "$root/scripts/needed_libraries.py" "$staged" >&2
fi
printf '%s\n' "$bundle"
