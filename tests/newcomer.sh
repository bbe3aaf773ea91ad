#!/usr/bin/env bash
# A newcomer's first minutes: the README's first commands, as an ordinary user of a clean system that has
# no CUDA toolkit. Each is timed; its output is kept in $LOGS, by default build/newcomer/RELEASE/.
#
#   tests/newcomer.sh [RELEASE [COMMAND...]]
#
#   RELEASE   bookworm (Debian 12, by default), trixie (Debian 13), or noble (Ubuntu 24.04)
#   COMMAND   instead of the README's, each with its arguments in one word
#
# Takes what is committed. Needs root, debootstrap, the keys of the distribution and a mirror, else ends
# with 77. Packages come from $MIRROR, by default from where this machine has its own of that distribution.
set -euo pipefail

release=${1:-bookworm}
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=${LOGS:-$project/build/newcomer/$release}

say() { printf 'newcomer: %s\n' "$*"; }
skip() {
  say "skipped: $*"
  exit 77
}

# The README's first block of shell, without remarks.
readme_commands() {
  awk '/^```sh$/ { inside = 1; next } /^```$/ && inside { exit } inside { sub(/ *#.*/, ""); print }' \
    "$project/README.md"
}

# The distribution, the keys of its packages, where they lie, and an older release that debootstrap knows.
describe_release() {
  components=main
  case $release in
    bookworm | trixie)
      distribution=Debian like=sid
      keys=/usr/share/keyrings/debian-archive-keyring.gpg
      ;;
    noble)
      distribution=Ubuntu like=gutsy
      keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
      components=main,universe
      ;;
    *)
      say "no release '$release': bookworm, trixie or noble"
      exit 2
      ;;
  esac
}

mirror() {
  [[ -n ${MIRROR:-} ]] && echo "$MIRROR" && return
  # shellcheck disable=SC2016 # the names are apt's
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk -v origin="$distribution" '$1 == origin && $2 == "main" && !found { print $3; found = 1 }'
}

# in_root COMMAND [ARGUMENT...]: in namespaces of its own, so that no mount or process outlives it.
in_root() {
  # shellcheck disable=SC2016 # expands within
  unshare --mount --pid --fork --kill-child bash -euc '
    mount -t proc proc "$0/proc"
    mount -t sysfs -o ro sysfs "$0/sys"
    mount -t tmpfs tmpfs "$0/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts" # for tests on a terminal
    mount --bind "$0/dev/pts/ptmx" "$0/dev/ptmx"
    exec chroot "$0" "$@"' "$root" "$@"
}

# Behind a proxy that signs for others, packages of Python come by its certificate alone.
trust_what_this_machine_trusts() {
  cp --recursive /usr/local/share/ca-certificates "$root/usr/local/share/" &&
    in_root update-ca-certificates &&
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
}

make_root() {
  # What installs a release that came after this debootstrap is that of another of its kind.
  local script=/usr/share/debootstrap/scripts/$release
  if [[ ! -e $script ]]; then script=$(dirname "$script")/$like; fi
  # The root of a newcomer who could clone the sources.
  unshare --mount debootstrap --include=ca-certificates,git,sudo --components="$components" \
    --keyring="$keys" "$release" "$root" "$1" "$script" &&
    echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts" &&
    echo "newcomer ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/newcomer" &&
    trust_what_this_machine_trusts &&
    in_root useradd --create-home --shell /bin/bash newcomer &&
    git clone --quiet --no-hardlinks "$project" "$root/home/newcomer/nearmetal" &&
    in_root chown -R newcomer: /home/newcomer
}

# timed TITLE LOG COMMAND [ARGUMENT...]
timed() {
  local title=$1 log=$2 start=$SECONDS status=0
  shift 2
  "$@" >"$log" 2>&1 || status=$?
  say "$title: $((SECONDS - start)) s, exit $status, see $log" | tee -a "$logs/times.txt"
  if ((status != 0)); then tail -n 30 "$log"; fi
  return "$status"
}

main() {
  local commands=("${@:2}") command from status=0
  describe_release
  ((EUID == 0)) || skip "not root"
  command -v debootstrap >/dev/null || skip "no debootstrap"
  [[ -e $keys ]] || skip "no keys of $distribution: $keys"
  from=$(mirror)
  [[ -n $from ]] || skip "this machine has no packages of $distribution: name a mirror by \$MIRROR"
  /usr/lib/apt/apt-helper download-file "${from%/}/dists/$release/Release" "$(mktemp)" >/dev/null ||
    skip "$from cannot be reached, or has no $release"
  if ((${#commands[@]} == 0)); then mapfile -t commands < <(readme_commands); fi

  mkdir -p "$logs"
  : >"$logs/times.txt"
  root=$(mktemp -d --tmpdir newcomer.XXXXXX)
  trap 'rm -rf --one-file-system "$root"' EXIT
  chmod 755 "$root"
  timed "a clean $release" "$logs/debootstrap.log" make_root "$from"
  for command in "${commands[@]}"; do
    timed "$command" "$logs/$(basename "${command%% *}" .sh).log" \
      in_root su --login newcomer --command "cd nearmetal && $command" || status=1
  done
  return "$status"
}

main "$@"
