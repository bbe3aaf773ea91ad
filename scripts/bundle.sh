#!/usr/bin/env bash
# Builds one relocatable tarball and prints its path: unpack it on a node, run bin/nearmetal.
#
#   scripts/bundle.sh [--with-cuda] [--deb] [-DNAME=VALUE...]     options of CMake, too
#
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

preset=$("$root/scripts/setup.sh")
if [[ $pack_cuda == ON && $preset == cpu-only ]]; then die "--with-cuda needs a CUDA toolkit"; fi
build=$root/build-bundle
configure "$preset" -B "$build" -DNEARMETAL_TESTS=OFF -DNEARMETAL_PACK_CUDA="$pack_cuda" \
  "${options[@]}" >&2
cmake --build "$build" >&2
rm -rf "$build/packages"
cpack -G "$generator" --config "$build/CPackConfig.cmake" -B "$build/packages" >&2

bundle=$(find "$build/packages" -maxdepth 1 -type f)
bytes=$(stat -c %s "$bundle")
if [[ $pack_cuda == OFF ]] && ((bytes > most_bytes)); then
  die "$bundle has $bytes bytes, more than $most_bytes"
fi
say "$((bytes / 1024 / 1024)) MiB"
printf '%s\n' "$bundle"
