#!/usr/bin/env bash
# Trains over a cable between two network namespaces whose rate tc limits, and shows the efficiency
# by rate.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Shows what a slower network would cost: makes two hosts of this machine, each with half of its CPUs and a
network of its own, joins them by a cable, limits the rate of the cable by tc, and trains on both at
each rate. For root of a Linux machine with two CPUs or more, iproute2 and util-linux.

  scripts/link_rates.sh [OPTION...] [-- OPTION OF SWEEP...]

  --rates LIST     in Gbit/s [1,2.5,10,25]
  --repeats N      fresh starts at each rate [3]
  --mpi tcp|ucx    what moves MPI's messages [tcp]
  --program FILE   nearmetal [build/nearmetal]
  --folder DIR     for the reports, in a folder of their own for each call [build/link_rates]

Examples:
  scripts/link_rates.sh
  scripts/link_rates.sh --rates 0.1,0.5,1 -- --model resnet50 --image-size 64 --batch 4 --duration 30s

Without other options a sweep trains ResNet-20 with 16 images of 32x32 on each host. One host alone, which
needs no network, is measured at each rate, too: it is what two are held against. The ranks check the rate
that the kernel reports (expect.link), so that a limit that is not in force ends a run with exit 10. It is
the rate of what leaves a host; the headers of packets take about 4 % of it.

The hosts are namespaces of the kernel, and go with the script. Nothing else of this machine changes.

Exit codes are those of nearmetal: 0, 2 for a wrong option, 8 where something is missing here, 130 after
Ctrl-C; of a sweep that failed, its own.
TEXT
}

network=10.213.78
hosts=(left right)
declare -A holders=() # processes, with which the namespaces go

refuse() {
  say "$2"
  exit "$1"
}

read_options() {
  rates=1,2.5,10,25 repeats=3 mpi=tcp program=$root/build/nearmetal folder=$root/build/link_rates
  while (($#)); do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --) shift && break ;;
      --rates | --repeats | --mpi | --program | --folder) ;;
      *) refuse 2 "unknown argument '$1' (--help lists them)" ;;
    esac
    (($# > 1)) || refuse 2 "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift 2
  done
  sweep_options=(--model resnet20 --image-size 32 --classes 10 --batch 16 --duration 3s)
  if (($#)); then sweep_options=("$@"); fi
  local number='[0-9]{1,4}([.][0-9]{1,3})?'
  [[ $rates =~ ^$number(,$number)*$ && ! ,$rates, =~ ,[0.]+, ]] ||
    refuse 2 "--rates takes rates in Gbit/s such as 1,2.5,10, not '$rates'"
  [[ $repeats =~ ^[1-9][0-9]{0,2}$ ]] || refuse 2 "--repeats is a number from 1, not '$repeats'"
  [[ $mpi == tcp || $mpi == ucx ]] || refuse 2 "--mpi is tcp or ucx, not '$mpi'"
  [[ -x $program && -f $program ]] || refuse 2 "--program: there is no program $program"
  program=$(realpath -- "$program")
}

require_tools() {
  local tool
  ((EUID == 0)) || refuse 8 "only root may make network namespaces"
  for tool in ip tc unshare nsenter setpriv mpirun; do
    command -v "$tool" >/dev/null || refuse 8 "there is no $tool here"
  done
  cpus=$(nproc)
  ((cpus > 1)) || refuse 8 "two hosts need two CPUs, and this process may use one"
}

# The half of the CPUs that this process may use: 0 or 1. "0,1"
half_of_cpus() {
  local all=() part range
  for part in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
    read -ra range < <(seq -s ' ' "${part%-*}" "${part#*-}")
    all+=("${range[@]}")
  done
  local half=$((${#all[@]} / 2))
  local IFS=,
  printf '%s' "${all[*]:$(($1 * half)):half}"
}

inside() { nsenter --target "${holders[$1]}" --net --uts --mount --wd="$folder" -- "${@:2}"; }

# Systems are told apart by what the kernel drew when it started, and networks seen in /sys.
start_host() {
  local boot_id=$scratch/boot-$1
  cat /proc/sys/kernel/random/uuid >"$boot_id"
  mkfifo "$scratch/up-$1"
  # shellcheck disable=SC2016 # expands within
  setpriv --pdeathsig KILL unshare --net --uts --mount sh -c '
    mount --bind "$1" /proc/sys/kernel/random/boot_id && mount -t sysfs none /sys &&
      hostname "$2" && ip link set lo up && echo up >"$3" && exec sleep infinity
    echo failed >"$3"' sh "$boot_id" "$1" "$scratch/up-$1" >/dev/null &
  holders[$1]=$!
  [[ $(<"$scratch/up-$1") == up ]] || refuse 8 "this kernel makes no hosts of namespaces"
}

join_hosts() {
  ip link add name cable netns "${holders[left]}" type veth peer name cable netns "${holders[right]}" ||
    refuse 8 "this kernel has no cables (veth)"
  local host number=0
  # shellcheck disable=SC2016 # expands within
  {
    echo '#!/bin/sh'
    echo '# In place of ssh: HOST COMMAND...'
    echo 'case $1 in'
    for host in "${hosts[@]}"; do
      inside "$host" ip address add "$network.$((++number))/24" dev cable
      inside "$host" ip link set cable up
      echo "$network.$number) pid=${holders[$host]} ;;"
    done
    echo '*) echo "no route to $1" >&2; exit 255 ;;'
    echo 'esac'
    echo 'shift'
    echo 'exec nsenter --target "$pid" --net --uts --mount -- sh -c "$*"'
  } >"$scratch/shell"
  chmod +x "$scratch/shell"
}

# A bucket of a few packets: a larger one would let whole gradients pass at once.
limit_cable() {
  local host
  for host in "${hosts[@]}"; do
    inside "$host" tc qdisc replace dev cable root tbf rate "$1gbit" burst 256k latency 100ms ||
      refuse 8 "this kernel limits no rates (tbf)"
  done
}

layouts_at() {
  cat <<JSON
{
  "hosts": [
    {"name": "left", "address": "$network.1", "gpus": 0, "cpus": "$(half_of_cpus 0)"},
    {"name": "right", "address": "$network.2", "gpus": 0, "cpus": "$(half_of_cpus 1)"}
  ],
  "launcher": {"network": "$network.0/24", "remote_shell": "$scratch/shell", "mpi": "$mpi"},
  "layouts": [
    {"name": "one host", "jobs": [{"instances": [{"host": "left", "ranks": 1}]}]},
    {"name": "two hosts, $1 Gbit/s", "expect": {"link": {"rate": "$1G"}},
     "jobs": [{"instances": [{"host": "left", "ranks": 1}, {"host": "right", "ranks": 1}]}]}
  ],
  "repeats": $repeats
}
JSON
}

end_hosts() {
  local host
  for host in "${!holders[@]}"; do
    { kill -KILL "${holders[$host]}" && wait "${holders[$host]}"; } 2>/dev/null || true # no obituary
  done
  rm -rf "$scratch"
}

main() {
  read_options "$@"
  require_tools
  folder=$folder/$(date -u +%Y%m%dT%H%M%SZ)
  mkdir -p "$folder"
  folder=$(realpath -- "$folder")
  scratch=$(mktemp -d)
  trap end_hosts EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  local host rate reports=()
  for host in "${hosts[@]}"; do start_host "$host"; done
  join_hosts
  for rate in ${rates//,/ }; do
    say "$rate Gbit/s"
    limit_cable "$rate"
    layouts_at "$rate" >"$folder/$rate.json"
    inside left "$program" sweep "$folder/$rate.json" "${sweep_options[@]}" --quiet \
      --output "$folder/$rate.report.json" >/dev/null
    reports+=("$folder/$rate.report.json")
  done
  "$program" report "${reports[@]}"
  say "reports: $folder"
}

main "$@"
