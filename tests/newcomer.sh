#!/usr/bin/env bash
# A newcomer's first minutes: the README's first commands, as an ordinary user of a clean Debian 12
# that has no CUDA toolkit. Each is timed; its output is kept in $LOGS, by default build/newcomer/.
#
#   tests/newcomer.sh [COMMAND...]     instead of the README's, each with its arguments in one word
#
# Takes what is committed. Needs root and debootstrap, else ends with 77. Packages come from
# $MIRROR, by default from where this machine has those of the same release.
set -euo pipefail

release=bookworm
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=${LOGS:-$project/build/newcomer}

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

mirror() {
  [[ -n ${MIRROR:-} ]] && echo "$MIRROR" && return
  # shellcheck disable=SC2016 # the names are apt's
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk -v release="$release" '$1 == release && !found { print $2; found = 1 }'
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

make_root() {
  # The root of a newcomer who could clone the sources.
  unshare --mount debootstrap --include=ca-certificates,git,sudo "$release" "$root" "$1" &&
    echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts" &&
    echo "newcomer ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/newcomer" &&
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
  local commands=("$@") command from status=0
  ((EUID == 0)) || skip "not root"
  command -v debootstrap >/dev/null || skip "no debootstrap"
  from=$(mirror)
  [[ -n $from ]] || skip "this machine has no packages of $release: name a mirror by \$MIRROR"
  if (($# == 0)); then mapfile -t commands < <(readme_commands); fi

  mkdir -p "$logs"
  : >"$logs/times.txt"
  root=$(mktemp -d --tmpdir newcomer.XXXXXX)
  trap 'rm -rf --one-file-system "$root"' EXIT
  chmod 755 "$root"
  timed "a clean Debian 12" "$logs/debootstrap.log" make_root "$from"
  for command in "${commands[@]}"; do
    timed "$command" "$logs/$(basename "${command%% *}" .sh).log" \
      in_root su --login newcomer --command "cd nearmetal && $command" || status=1
  done
  return "$status"
}

main "$@"
