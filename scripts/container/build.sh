#!/usr/bin/env bash
# The build stage of an image: builds the sources around it, and installs them in /opt/nearmetal.
# For root of a Debian or Ubuntu; with CUDA where its toolkit and cuDNN are there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends ca-certificates git # git: reports hold the commit
preset=$(scripts/setup.sh)
build=$(mktemp -d)
cmake --preset "$preset" -B "$build" -DNEARMETAL_TESTS=OFF
cmake --build "$build"
cmake --install "$build" --prefix /opt/nearmetal --strip
rm -r "$build"
