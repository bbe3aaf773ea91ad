#!/bin/sh
# Runs a test that needs a GPU. Without one the test would say itself that it is skipped, but not before
# a hundred megabytes of CUDA's libraries are loaded, in a process for each.
case "$*" in *--gtest_list_tests*) exec "$@" ;; esac
# WSL shows the GPU under the second name.
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then exec "$@"; fi
echo "[  SKIPPED ] no NVIDIA device: neither /dev/nvidiactl nor /dev/dxg exists"
exit 1 # what takes no notice of that line is not to count it as passed
