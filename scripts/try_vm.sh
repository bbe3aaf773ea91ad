#!/usr/bin/env bash
# Compares a VM with its own host: makes a Debian guest, trains in it and beside it by turns,
# compares.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Holds a VM against its own host: makes a Debian guest, trains ResNet-20 on its CPUs, on the host's and in
a container, by turns, and compares. For root of an x86-64 machine with Debian's packages.

  scripts/try_vm.sh [OPTION...]

  --bundle FILE    what to run: a tarball of scripts/bundle.sh [the script makes one]
  --build DIR      instead: what is built in this folder, for CPUs
  --emulate        QEMU emulates the guest's CPU, also where KVM would boot it
  --launches N     of each side, at least 3 [5]
  --duration TIME  of each timed window [5s]
  --batch N        images per step [4]
  --cpus N         of the guest; the other sides are held to as many [2, at most those there are]
  --memory MIB     of the guest [2048]
  --folder DIR     for everything that is made [build/try_vm]

Examples:
  scripts/try_vm.sh                                  KVM where it boots the guest, else emulation
  scripts/try_vm.sh --build build --emulate          a guest that is slower by far
  scripts/try_vm.sh --launches 10 --duration 20s     for a narrower interval

Four sides take turns: the host, the guest, a container, and the host again, which shows how much two
sets of runs of one machine differ. The guest's system is made once and kept (1.5 GB); it never changes.
Reports, doctor's findings and pages are in a folder of their own for each call, and stay when it is
stopped. Nothing outside of DIR changes: programs that are missing here are unpacked in it.

Exit codes are those of nearmetal: 0 whatever the verdict, 2 for a wrong option, 8 where something
is missing here, 130 after Ctrl-C; of a run that failed, its own.
TEXT
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# Each line: the package, and its program or file.
needs="
qemu-system-x86         qemu-system-x86_64
debootstrap             debootstrap
debian-archive-keyring  $keyring
gpgv                    gpgv
e2fsprogs               mke2fs
util-linux              setpriv
"
sides=(host guest container again)
least_launches=3
boot_seconds=600 # of an emulated CPU, beside others
run_seconds=3600

refuse() {
  say "$2"
  exit "$1"
}

whole_number() {
  [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || refuse 2 "$1 is a number from 1, not '$2'"
}

read_options() {
  bundle='' build='' emulate=no launches=5 duration=5s batch=4 cpus='' memory=2048
  folder=$root/build/try_vm
  while (($#)); do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --emulate) emulate=yes && shift && continue ;;
      --bundle | --build | --launches | --duration | --batch | --cpus | --memory | --folder) ;;
      *) refuse 2 "unknown argument '$1' (--help lists them)" ;;
    esac
    (($# > 1)) || refuse 2 "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift 2
  done
  local there
  there=$(nproc)
  if [[ -z $cpus ]]; then cpus=$((there < 2 ? there : 2)); fi
  for option in launches batch cpus memory; do whole_number "--$option" "${!option}"; done
  [[ $duration =~ ^[0-9]+([.][0-9]+)?[smh]?$ ]] ||
    refuse 2 "--duration is a time such as 30, 30s or 2m, not '$duration'"
  ((launches >= least_launches)) || refuse 2 "--launches is at least $least_launches, not $launches"
  ((cpus <= there)) || refuse 2 "--cpus $cpus is more than the $there that this process may use"
  [[ -z $bundle || -z $build ]] || refuse 2 "--bundle and --build exclude each other"
  [[ -z $bundle || -f $bundle ]] || refuse 2 "--bundle: there is no file $bundle"
  [[ -z $build || -x $build/nearmetal ]] || refuse 2 "--build: there is no program $build/nearmetal"
  folder=$(realpath --canonicalize-missing -- "$folder")
  # They separate what lists of folders and options of QEMU hold.
  [[ $folder != *[,:[:cntrl:]]* ]] ||
    refuse 2 "--folder is a path without commas, colons and control characters"
}

# apt_in_folder ARGUMENT...: apt-get, with its lists and archives in the folder.
apt_in_folder() {
  mkdir -p "$tools/lists/partial" "$tools/archives/partial"
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
    -o Dir::State::lists="$tools/lists" -o Dir::Cache::archives="$tools/archives" \
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}

# unpack PACKAGE...: below $tools/root, with what they need and this machine has not.
unpack() {
  local archive
  apt_in_folder update &&
    apt_in_folder install --yes --download-only --no-install-recommends "$@" || return 1
  for archive in "$tools"/archives/*.deb; do
    # The archive of a package that is installed here would be a newer version of it.
    if ! dpkg-query --status "$(dpkg-deb --field "$archive" Package)" >/dev/null 2>&1; then
      dpkg-deb --extract "$archive" "$tools/root" || return 1
    fi
  done
  rm -rf --one-file-system "$tools/archives" "$tools/lists"
}

is_there() {
  case $1 in
    /*) [[ -r $1 ]] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# Programs that this machine lacks are unpacked in the folder and not installed, so that nothing else
# changes; what they take their libraries and files from is in $with_tools and $qemu_files.
provide_tools() {
  local package program missing=()
  tools=$folder/tools with_tools=() qemu_files=()
  while read -r package program; do
    if [[ -n $package ]] && ! is_there "$program"; then missing+=("$package"); fi
  done <<<"$needs"
  ((${#missing[@]})) || return 0
  if [[ ! -f $tools/stamp || $(<"$tools/stamp") != "${missing[*]}" ]]; then
    command -v apt-get >/dev/null || refuse 8 "install these packages: ${missing[*]}"
    say "unpacking ${missing[*]} in $tools"
    rm -rf --one-file-system "$tools"
    interruptible unpack "${missing[@]}" >"$results/apt.log" 2>&1 ||
      refuse 8 "could not get ${missing[*]}: see $results/apt.log"
    printf '%s\n' "${missing[*]}" >"$tools/stamp"
  fi
  local usr=$tools/root/usr
  local libraries=$usr/lib/x86_64-linux-gnu
  PATH=$PATH:$usr/sbin:$usr/bin:$tools/root/sbin:$tools/root/bin
  with_tools=(env "LD_LIBRARY_PATH=$libraries:$tools/root/lib/x86_64-linux-gnu")
  if [[ ! -r $keyring ]]; then keyring=$tools/root$keyring; fi
  if [[ -d $usr/share/debootstrap ]]; then with_tools+=("DEBOOTSTRAP_DIR=$usr/share/debootstrap"); fi
  if [[ -d $usr/share/qemu ]]; then
    with_tools+=("QEMU_MODULE_DIR=$libraries/qemu")
    qemu_files=(-L "$usr/share/qemu" -L "$usr/share/seabios")
  fi
}

check_machine() {
  [[ $(uname -m) == x86_64 ]] || refuse 8 "the guest is for x86-64, this machine is $(uname -m)"
  ((EUID == 0)) || refuse 8 "debootstrap and namespaces take root: call it by sudo"
  unshare --mount --pid --fork true 2>/dev/null || refuse 8 "this machine allows no namespaces"
  nobodys_group=$(id -g nobody) || refuse 8 "there is no user 'nobody', as whom QEMU runs"
}

# The release of this machine where that is Debian: libraries are of one version inside and out.
choose_release() {
  # shellcheck disable=SC1091 # of the system
  release=$(. /etc/os-release && [[ $ID == debian ]] && echo "${VERSION_CODENAME:-}") || release=''
  release=${release:-bookworm}
  # shellcheck disable=SC2016 # the names are apt's
  mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk -v release="$release" '$1 == release && !found { print $2; found = 1 }') || mirror=''
  mirror=${mirror:-http://deb.debian.org/debian}
}

# The script that the guest starts with: a line on the second serial port is a command for it.
guest_init() {
  cat <<'TEXT'
#!/bin/bash
export PATH=/opt/nearmetal/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
for kind in proc:/proc sysfs:/sys; do
  mountpoint -q "${kind#*:}" || mount -t "${kind%:*}" none "${kind#*:}"
done
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
modprobe 9pnet_virtio
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro program /mnt
cp -r /mnt/. /opt/nearmetal/
umount /mnt
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
: >/share/job.log && echo ready >&3
while read -r command <&3; do
  (cd /share && eval "exec $command") >/share/job.log 2>&1 </dev/null 3>&-
  echo "done $?" >&3
done
TEXT
}

make_system() {
  local log=$1 made=$folder/system.part
  rm -rf --one-file-system "$made" && mkdir -p "$made/root" || return 1
  # Mounts and processes of its own, so that none outlives it.
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child \
    "${with_tools[@]}" debootstrap --force-check-gpg --keyring="$keyring" --variant=minbase \
    --include=linux-image-amd64,kmod "$release" "$made/root" "$mirror" >"$log" 2>&1 || return 1
  mkdir -p "$made/root/share" "$made/root/opt/nearmetal"
  guest_init >"$made/root/sbin/turns" && chmod 755 "$made/root/sbin/turns"
  cp -L "$made/root/vmlinuz" "$made/vmlinuz" && cp -L "$made/root/initrd.img" "$made/initrd.img" &&
    "${with_tools[@]}" mke2fs -q -t ext4 -d "$made/root" "$made/disk" 4G >>"$log" 2>&1 &&
    chmod 644 "$made"/{vmlinuz,initrd.img,disk} && printf '%s\n' "$stamp" >"$made/stamp"
}

# Kept from call to call.
provide_system() {
  stamp="$release $(guest_init | sha256sum)"
  if [[ -f $folder/system/stamp && $(<"$folder/system/stamp") == "$stamp" ]]; then
    say "the guest's system is at hand: Debian $release in $folder/system"
    return
  fi
  say "making the guest's system: Debian $release from $mirror, some minutes"
  interruptible make_system "$results/debootstrap.log" ||
    refuse 8 "that failed: $(tail -n 1 "$results/debootstrap.log"); see $results/debootstrap.log"
  rm -rf --one-file-system "$folder/system"
  mv "$folder/system.part" "$folder/system"
}

provide_program() {
  mkdir -p "$results/program"
  if [[ -n $build ]]; then
    cmake --install "$build" --prefix "$results/program" >"$results/install.log" 2>&1 ||
      refuse 8 "could not install $build: see $results/install.log"
    return
  fi
  if [[ -z $bundle ]]; then
    say "making the bundle"
    interruptible "$root/scripts/bundle.sh" >"$results/bundle.path" 2>"$results/bundle.log" ||
      refuse 8 "could not make the bundle: see $results/bundle.log"
    bundle=$(<"$results/bundle.path")
  fi
  tar --force-local --no-same-owner -xf "$bundle" -C "$results/program" --strip-components=1 ||
    refuse 2 "$bundle is no tarball"
}

# interruptible COMMAND [ARGUMENT...]: bash handles a signal at once while it waits.
interruptible() {
  "$@" &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=''
  return "$status"
}

stop_guest() {
  [[ -n ${guest:-} ]] || return 0
  kill "$guest" 2>/dev/null || true
  wait "$guest" 2>/dev/null || true
  guest=''
}

clean_up() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  if [[ -n ${child:-} ]]; then
    kill "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  stop_guest
  rm -rf --one-file-system "$folder/system.part" "$results"/{program,guest,turns.in,turns.out,job.log}
  say "what was found is in $results"
  exit "$status"
}

# The guest's next line; fails when it ended, or after so many seconds.
guest_says() {
  local deadline=$((SECONDS + $1)) part
  answer=''
  while ((SECONDS < deadline)); do
    if read -r -t 1 -u "$from_guest" part; then
      answer+=$part
      return 0
    fi
    answer+=$part
    kill -0 "$guest" 2>/dev/null || return 1
  done
  return 1
}

# boot ACCELERATOR CPU
boot() {
  local qemu
  rm -f "$results"/turns.{in,out}
  mkfifo --mode 600 "$results/turns.in" "$results/turns.out"
  chown nobody "$results"/turns.{in,out}
  exec {to_guest}<>"$results/turns.in" {from_guest}<>"$results/turns.out"
  # What it writes to its disk goes to a file without a name in TMPDIR.
  # shellcheck disable=SC2054 # QEMU's commas
  qemu=(env "PATH=$PATH" "TMPDIR=$results/guest" taskset --cpu-list "$held_to"
    "${with_tools[@]}" qemu-system-x86_64 "${qemu_files[@]}" -machine q35 -accel "$1" -cpu "$2"
    -smp "$cpus" -m "$memory" -nodefaults -no-reboot -display none
    -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
    -kernel "$folder/system/vmlinuz" -initrd "$folder/system/initrd.img"
    -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 init=/sbin/turns"
    -drive "file=$folder/system/disk,format=raw,if=virtio,snapshot=on"
    -virtfs "local,path=$results/program,mount_tag=program,readonly=on,security_model=mapped-xattr"
    -virtfs "local,path=$results/guest,mount_tag=share,security_model=mapped-xattr"
    -serial stdio -chardev "pipe,id=turns,path=$results/turns" -serial chardev:turns)
  # It ends with this script, however that ends. It is nobody, who may open no /dev/kvm and may not be
  # able to reach the folder: there it has a /dev/kvm of its own, and the folder is /mnt.
  # shellcheck disable=SC2016 # expands within
  setpriv --pdeathsig KILL unshare --mount bash -euc '
    if [[ $1 == kvm ]]; then
      mount -t tmpfs none /mnt
      mknod --mode 666 /mnt/kvm c 10 232
      mount --bind /mnt/kvm /dev/kvm
    fi
    mount --bind "$0" /mnt
    exec setpriv --pdeathsig KILL --reuid nobody --regid "$2" --clear-groups --no-new-privs "${@:3}"' \
    "$folder" "$1" "$nobodys_group" "${qemu[@]//"$folder"//mnt}" -name "guest=$folder" \
    </dev/null >"$results/console.log" 2>"$results/qemu.log" &
  guest=$!
  guest_says "$boot_seconds" && [[ $answer == ready ]] && return
  stop_guest
  return 1
}

boot_guest() {
  local start=$SECONDS
  accelerator=kvm
  if [[ $emulate == yes ]]; then
    accelerator=tcg
  elif [[ ! -w /dev/kvm ]]; then
    accelerator=tcg
    say "no KVM here: there is no /dev/kvm that can be opened"
  elif ! boot kvm host; then
    accelerator=tcg
    say "no KVM here: $(tail -n 1 "$results/qemu.log" | grep . || echo 'the guest did not come up')"
  fi
  if [[ $accelerator == tcg ]]; then
    say "QEMU emulates the guest's CPU in software"
    boot tcg,thread=multi max || refuse 8 "the guest did not come up: see $results/console.log, qemu.log"
  fi
  say "the guest is up after $((SECONDS - start)) s: $cpus CPUs, $memory MiB, by $accelerator"
}

on_host() {
  (cd "$results" && HOME=$results/program PATH=$results/program/bin:$PATH \
    exec taskset --cpu-list "$held_to" "$@") >"$results/job.log" 2>&1
}

in_container() {
  # shellcheck disable=SC2016 # expands within
  setpriv --pdeathsig KILL taskset --cpu-list "$held_to" \
    unshare --mount --pid --ipc --uts --fork --kill-child bash -euc '
    mount --bind -o ro "$0" "$0"
    cd "$0"
    mount -t proc none proc
    mount -t sysfs -o ro none sys
    mount -t tmpfs none tmp
    mount -t tmpfs none dev/shm
    mount --bind "$1" share
    mount --bind -o ro "$1/program" opt/nearmetal
    hostname container
    shift
    exec env -i container=unshare HOME=/tmp PATH="/opt/nearmetal/bin:$PATH" \
      chroot . bash -c "cd /share && exec \"\$@\"" bash "$@"' \
    "$folder/system/root" "$results" "$@" >"$results/job.log" 2>&1
}

# collect FILE: what the guest wrote, read as who may read no more than QEMU.
collect() {
  (cd "$results/guest" && exec setpriv --reuid nobody --regid "$nobodys_group" --clear-groups \
    cat -- "$1") >"$results/$1"
}

in_guest() {
  printf '%s\n' "$(printf '%q ' "$@")" >&"$to_guest"
  if ! guest_says "$run_seconds" || [[ ! $answer =~ ^done\ [0-9]{1,3}$ ]]; then
    refuse 6 "the guest ended, or does not answer: see $results/console.log"
  fi
  collect job.log
  return "${answer#done }"
}

# on SIDE WORD...: runs that there; what it says is in job.log.
on() {
  local side=$1
  shift
  case $side in
    guest) in_guest "$@" ;;
    container) interruptible in_container "$@" ;;
    *) interruptible on_host "$@" ;;
  esac
}

ask_doctors() {
  local side status
  for side in host guest container; do
    status=0
    on "$side" nearmetal doctor || status=$?
    say "doctor, $side: exit $status, $results/doctor_$side.txt"
    ((status == 0 || status == 8)) || refuse "$status" "$(tail -n 1 "$results/job.log")"
    mv "$results/job.log" "$results/doctor_$side.txt"
  done
}

# launch SIDE NUMBER
launch() {
  local report=$1$2.json status=0
  on "$1" nearmetal run --device cpu --model resnet20 --image-size 32 --batch "$batch" \
    --threads "$cpus" --duration "$duration" --attribute --quiet --output "$report" || status=$?
  ((status == 0)) || refuse "$status" "run $2, $1: $(tail -n 1 "$results/job.log") (exit $status)"
  if [[ $1 == guest ]]; then collect "$report"; fi
  say "run $2 of $launches, $1: $(grep -m 1 throughput "$results/job.log" | xargs)"
}

# The first CPUs of those that this process may use: "0,1".
first_cpus() {
  local range
  awk '/^Cpus_allowed_list/ { gsub(",", "\n", $2); print $2 }' /proc/self/status |
    while read -r range; do seq "${range%-*}" "${range#*-}"; done | sed -n "1,${cpus}p" | paste -sd,
}

# There and back, so that no side is always the first.
take_turns() {
  local number place
  for ((number = 1; number <= launches; ++number)); do
    for ((place = 0; place < ${#sides[@]}; ++place)); do
      launch "${sides[number % 2 ? place : ${#sides[@]} - 1 - place]}" "$number"
    done
  done
}

# show TITLE PAGE ARGUMENT...
show() {
  local title=$1 page=$2
  shift 2
  printf '\n== %s\n\n' "$title"
  "$results/program/bin/nearmetal" compare "$@" --html "$page"
}

compare_sides() (
  cd "$results"
  local differ=()
  # QEMU's CPU has a name of its own, which is what this is about.
  if [[ $accelerator == tcg ]]; then differ=(--allow-differ cpu_model); fi
  show "the guest ($accelerator) against its host" guest.html --bare host*.json --vm guest*.json "${differ[@]}"
  show "a container against its host" container.html --bare host*.json --container container*.json
  show "the host against itself" again.html --base host*.json --new again*.json
)

main() {
  read_options "$@"
  check_machine
  umask 022
  mkdir -p "$folder"
  [[ $(stat --format %a "$folder") == *[1357] ]] ||
    refuse 2 "--folder: QEMU, which is not root, could not enter $folder: chmod o+x it"
  exec {lock}>"$folder/lock"
  # Processes that a stopped call had started may take a moment to end.
  flock --timeout 5 "$lock" || refuse 8 "another call uses $folder: name another by --folder"
  results=$folder/$(date -u +%Y%m%dT%H%M%SZ)
  mkdir "$results"
  install --directory --owner nobody --group "$nobodys_group" "$results/guest"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  provide_tools
  choose_release
  provide_system
  provide_program
  held_to=$(first_cpus)
  boot_guest
  ask_doctors
  take_turns
  compare_sides
}

main "$@"
