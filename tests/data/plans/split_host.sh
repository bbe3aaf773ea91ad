#!/usr/bin/env bash

set -u -o pipefail
if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
trap 'kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 129' HUP
trap 'kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 130' INT
trap 'kill "${jobs[@]}" 2>/dev/null; wait_for_jobs; exit 143' TERM
trap 'rm -rf "$scratch"' EXIT
scratch=$(mktemp -d) || exit 9
status=0
number=0
jobs=()
reports=()

end_session() { # such as an ssh that hangs
  local file line session
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue
    read -r _ _ _ session _ <<<"${line##*) }" # after state, parent and group
    if [[ $session == "$1" ]]; then kill -KILL "${file//[^0-9]/}" 2>/dev/null; fi
  done
}

is_report() { # or may be, where the program is on other hosts alone
  [[ -s $1 ]] && { ! command -v "$program" >/dev/null || "$program" validate "$1" >/dev/null; }
}

publish() { # a report, by its name
  if is_report "$1.part"; then
    mv "$1.part" "$1" || status=9
  elif is_report "$1.last"; then
    mv "$1.last" "$1" || status=9
    rm -f "$1.part"
  elif [[ ! -s $1.part ]]; then
    rm -f "$1.part"
  fi
  rm -f "$1.last"
}

wait_for_jobs() {
  local i
  for i in "${!jobs[@]}"; do
    wait "${jobs[i]}" || status=$?
    end_session "${jobs[i]}"
    publish "${reports[i]}"
  done
  jobs=()
  reports=()
}

# What is there is never replaced.
require_new() {
  local report
  for report in "$@"; do
    if [[ -e $report || -s $report.part ]]; then
      echo "$report is there already: nothing is started" >&2
      exit 9
    fi
  done
}
program=/opt/nearmetal

layout_1() {
  echo "launch $((++number)) of 45:" 'whole host, one GPU,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"1-whole-host--one-GPU-run$1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,vader --timeout 1800 --host localhost:1 -np 1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0 /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=whole host, one GPU' --ranks=1 \
    </dev/null >"1-whole-host--one-GPU-run$1.report.json.part" &
  jobs+=($!) reports+=("1-whole-host--one-GPU-run$1.report.json")
}

layout_2() {
  echo "launch $((++number)) of 45:" 'whole host, two GPUs,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"2-whole-host--two-GPUs-run$1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,vader --timeout 1800 --host localhost:2 -np 2 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0,1 /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=whole host, two GPUs' --ranks=2 \
    </dev/null >"2-whole-host--two-GPUs-run$1.report.json.part" &
  jobs+=($!) reports+=("2-whole-host--two-GPUs-run$1.report.json")
}

layout_3() {
  echo "launch $((++number)) of 45:" 'whole host, two jobs,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"3-whole-host--two-jobs-run$1-job1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,vader --timeout 1800 --host localhost:1 -np 1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0 -x NCCL_RAS_ADDR=localhost:28028 /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=whole host, two jobs, job 1' --ranks=1 \
    </dev/null >"3-whole-host--two-jobs-run$1-job1.report.json.part" &
  jobs+=($!) reports+=("3-whole-host--two-jobs-run$1-job1.report.json")
  mkdir -p "$scratch/job2"
  TMPDIR="$scratch/job2" NEARMETAL_LAST_REPORT=$PWD/"3-whole-host--two-jobs-run$1-job2.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,vader --timeout 1800 --host localhost:1 -np 1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=1 -x NCCL_RAS_ADDR=localhost:28029 /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=whole host, two jobs, job 2' --ranks=1 \
    </dev/null >"3-whole-host--two-jobs-run$1-job2.report.json.part" &
  jobs+=($!) reports+=("3-whole-host--two-jobs-run$1-job2.report.json")
}

layout_4() {
  echo "launch $((++number)) of 45:" 'one VM, one GPU,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"4-one-VM--one-GPU-run$1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:1 -np 1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0 -x NCCL_HOSTID=localhost-vm0 -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_SOCKET_IFNAME==lo /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=one VM, one GPU' --emulated --ranks=1 --gpu=0 \
    </dev/null >"4-one-VM--one-GPU-run$1.report.json.part" &
  jobs+=($!) reports+=("4-one-VM--one-GPU-run$1.report.json")
}

layout_5() {
  echo "launch $((++number)) of 45:" 'one VM, two GPUs,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"5-one-VM--two-GPUs-run$1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:2 -np 2 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0,1 -x NCCL_HOSTID=localhost-vm0 -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_SOCKET_IFNAME==lo sh -c 'case $OMPI_COMM_WORLD_RANK in 0) exec "$@" --gpu=0;; 1) exec "$@" --gpu=1;; *) echo not started by mpirun of Open MPI >&2; exit 2;; esac' sh /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=one VM, two GPUs' --emulated --ranks=2 \
    </dev/null >"5-one-VM--two-GPUs-run$1.report.json.part" &
  jobs+=($!) reports+=("5-one-VM--two-GPUs-run$1.report.json")
}

layout_6() {
  echo "launch $((++number)) of 45:" 'two VMs, one GPU each, one job,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"6-two-VMs--one-GPU-each--one-job-run$1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:2 -np 2 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_SOCKET_IFNAME==lo sh -c 'case $OMPI_COMM_WORLD_RANK in 0) exec env CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID=localhost-vm0 "$@" --gpu=0;; 1) exec env CUDA_VISIBLE_DEVICES=1 NCCL_HOSTID=localhost-vm1 "$@" --gpu=0;; *) echo not started by mpirun of Open MPI >&2; exit 2;; esac' sh /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=two VMs, one GPU each, one job' --emulated --ranks=2 \
    </dev/null >"6-two-VMs--one-GPU-each--one-job-run$1.report.json.part" &
  jobs+=($!) reports+=("6-two-VMs--one-GPU-each--one-job-run$1.report.json")
}

layout_7() {
  echo "launch $((++number)) of 45:" 'two VMs, one GPU each, independent,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"7-two-VMs--one-GPU-each--independent-run$1-job1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:1 -np 1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0 -x NCCL_HOSTID=localhost-vm0 -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_RAS_ADDR=localhost:28028 -x NCCL_SOCKET_IFNAME==lo /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=two VMs, one GPU each, independent, job 1' --emulated --ranks=1 --gpu=0 \
    </dev/null >"7-two-VMs--one-GPU-each--independent-run$1-job1.report.json.part" &
  jobs+=($!) reports+=("7-two-VMs--one-GPU-each--independent-run$1-job1.report.json")
  mkdir -p "$scratch/job2"
  TMPDIR="$scratch/job2" NEARMETAL_LAST_REPORT=$PWD/"7-two-VMs--one-GPU-each--independent-run$1-job2.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:1 -np 1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=1 -x NCCL_HOSTID=localhost-vm1 -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_RAS_ADDR=localhost:28029 -x NCCL_SOCKET_IFNAME==lo /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=two VMs, one GPU each, independent, job 2' --emulated --ranks=1 --gpu=0 \
    </dev/null >"7-two-VMs--one-GPU-each--independent-run$1-job2.report.json.part" &
  jobs+=($!) reports+=("7-two-VMs--one-GPU-each--independent-run$1-job2.report.json")
}

layout_8() {
  echo "launch $((++number)) of 45:" 'two VMs, two GPUs each, one job,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"8-two-VMs--two-GPUs-each--one-job-run$1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:4 -np 4 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_SOCKET_IFNAME==lo sh -c 'case $OMPI_COMM_WORLD_RANK in 0) exec env CUDA_VISIBLE_DEVICES=0,1 NCCL_HOSTID=localhost-vm0 "$@" --gpu=0;; 1) exec env CUDA_VISIBLE_DEVICES=0,1 NCCL_HOSTID=localhost-vm0 "$@" --gpu=1;; 2) exec env CUDA_VISIBLE_DEVICES=2,3 NCCL_HOSTID=localhost-vm1 "$@" --gpu=0;; 3) exec env CUDA_VISIBLE_DEVICES=2,3 NCCL_HOSTID=localhost-vm1 "$@" --gpu=1;; *) echo not started by mpirun of Open MPI >&2; exit 2;; esac' sh /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=two VMs, two GPUs each, one job' --emulated --ranks=4 \
    </dev/null >"8-two-VMs--two-GPUs-each--one-job-run$1.report.json.part" &
  jobs+=($!) reports+=("8-two-VMs--two-GPUs-each--one-job-run$1.report.json")
}

layout_9() {
  echo "launch $((++number)) of 45:" 'two VMs, two GPUs each, independent,' "run $1" >&2
  mkdir -p "$scratch/job1"
  TMPDIR="$scratch/job1" NEARMETAL_LAST_REPORT=$PWD/"9-two-VMs--two-GPUs-each--independent-run$1-job1.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:2 -np 2 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=0,1 -x NCCL_HOSTID=localhost-vm0 -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_RAS_ADDR=localhost:28028 -x NCCL_SOCKET_IFNAME==lo sh -c 'case $OMPI_COMM_WORLD_RANK in 0) exec "$@" --gpu=0;; 1) exec "$@" --gpu=1;; *) echo not started by mpirun of Open MPI >&2; exit 2;; esac' sh /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=two VMs, two GPUs each, independent, job 1' --emulated --ranks=2 \
    </dev/null >"9-two-VMs--two-GPUs-each--independent-run$1-job1.report.json.part" &
  jobs+=($!) reports+=("9-two-VMs--two-GPUs-each--independent-run$1-job1.report.json")
  mkdir -p "$scratch/job2"
  TMPDIR="$scratch/job2" NEARMETAL_LAST_REPORT=$PWD/"9-two-VMs--two-GPUs-each--independent-run$1-job2.report.json.last" setsid mpirun --bind-to none --map-by slot --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo --timeout 1800 --host localhost:2 -np 2 -x CUDA_DEVICE_ORDER=PCI_BUS_ID -x CUDA_VISIBLE_DEVICES=2,3 -x NCCL_HOSTID=localhost-vm1 -x NCCL_IB_DISABLE=1 -x NCCL_MNNVL_ENABLE=0 -x NCCL_NET=Socket -x NCCL_RAS_ADDR=localhost:28029 -x NCCL_SOCKET_IFNAME==lo sh -c 'case $OMPI_COMM_WORLD_RANK in 0) exec "$@" --gpu=0;; 1) exec "$@" --gpu=1;; *) echo not started by mpirun of Open MPI >&2; exit 2;; esac' sh /opt/nearmetal run --device=cuda --batch=256 --duration=20s --model=resnet50 --precision=fp16 --json '--arm=two VMs, two GPUs each, independent, job 2' --emulated --ranks=2 \
    </dev/null >"9-two-VMs--two-GPUs-each--independent-run$1-job2.report.json.part" &
  jobs+=($!) reports+=("9-two-VMs--two-GPUs-each--independent-run$1-job2.report.json")
}

require_new \
  9-two-VMs--two-GPUs-each--independent-run1-job1.report.json \
  9-two-VMs--two-GPUs-each--independent-run1-job2.report.json \
  4-one-VM--one-GPU-run1.report.json \
  3-whole-host--two-jobs-run1-job1.report.json \
  3-whole-host--two-jobs-run1-job2.report.json \
  2-whole-host--two-GPUs-run1.report.json \
  8-two-VMs--two-GPUs-each--one-job-run1.report.json \
  1-whole-host--one-GPU-run1.report.json \
  5-one-VM--two-GPUs-run1.report.json \
  7-two-VMs--one-GPU-each--independent-run1-job1.report.json \
  7-two-VMs--one-GPU-each--independent-run1-job2.report.json \
  6-two-VMs--one-GPU-each--one-job-run1.report.json
require_new \
  7-two-VMs--one-GPU-each--independent-run2-job1.report.json \
  7-two-VMs--one-GPU-each--independent-run2-job2.report.json \
  4-one-VM--one-GPU-run2.report.json \
  8-two-VMs--two-GPUs-each--one-job-run2.report.json \
  2-whole-host--two-GPUs-run2.report.json \
  3-whole-host--two-jobs-run2-job1.report.json \
  3-whole-host--two-jobs-run2-job2.report.json \
  5-one-VM--two-GPUs-run2.report.json \
  6-two-VMs--one-GPU-each--one-job-run2.report.json \
  9-two-VMs--two-GPUs-each--independent-run2-job1.report.json \
  9-two-VMs--two-GPUs-each--independent-run2-job2.report.json \
  1-whole-host--one-GPU-run2.report.json
require_new \
  7-two-VMs--one-GPU-each--independent-run3-job1.report.json \
  7-two-VMs--one-GPU-each--independent-run3-job2.report.json \
  4-one-VM--one-GPU-run3.report.json \
  6-two-VMs--one-GPU-each--one-job-run3.report.json \
  1-whole-host--one-GPU-run3.report.json \
  2-whole-host--two-GPUs-run3.report.json \
  9-two-VMs--two-GPUs-each--independent-run3-job1.report.json \
  9-two-VMs--two-GPUs-each--independent-run3-job2.report.json \
  5-one-VM--two-GPUs-run3.report.json \
  8-two-VMs--two-GPUs-each--one-job-run3.report.json \
  3-whole-host--two-jobs-run3-job1.report.json \
  3-whole-host--two-jobs-run3-job2.report.json
require_new \
  5-one-VM--two-GPUs-run4.report.json \
  3-whole-host--two-jobs-run4-job1.report.json \
  3-whole-host--two-jobs-run4-job2.report.json \
  2-whole-host--two-GPUs-run4.report.json \
  8-two-VMs--two-GPUs-each--one-job-run4.report.json \
  7-two-VMs--one-GPU-each--independent-run4-job1.report.json \
  7-two-VMs--one-GPU-each--independent-run4-job2.report.json \
  4-one-VM--one-GPU-run4.report.json \
  1-whole-host--one-GPU-run4.report.json \
  6-two-VMs--one-GPU-each--one-job-run4.report.json \
  9-two-VMs--two-GPUs-each--independent-run4-job1.report.json \
  9-two-VMs--two-GPUs-each--independent-run4-job2.report.json
require_new \
  3-whole-host--two-jobs-run5-job1.report.json \
  3-whole-host--two-jobs-run5-job2.report.json \
  2-whole-host--two-GPUs-run5.report.json \
  4-one-VM--one-GPU-run5.report.json \
  9-two-VMs--two-GPUs-each--independent-run5-job1.report.json \
  9-two-VMs--two-GPUs-each--independent-run5-job2.report.json \
  6-two-VMs--one-GPU-each--one-job-run5.report.json \
  1-whole-host--one-GPU-run5.report.json \
  5-one-VM--two-GPUs-run5.report.json \
  7-two-VMs--one-GPU-each--independent-run5-job1.report.json \
  7-two-VMs--one-GPU-each--independent-run5-job2.report.json \
  8-two-VMs--two-GPUs-each--one-job-run5.report.json

layout_9 1; wait_for_jobs
layout_4 1; wait_for_jobs
layout_3 1; wait_for_jobs
layout_2 1; wait_for_jobs
layout_8 1; wait_for_jobs
layout_1 1; wait_for_jobs
layout_5 1; wait_for_jobs
layout_7 1; wait_for_jobs
layout_6 1; wait_for_jobs
layout_7 2; wait_for_jobs
layout_4 2; wait_for_jobs
layout_8 2; wait_for_jobs
layout_2 2; wait_for_jobs
layout_3 2; wait_for_jobs
layout_5 2; wait_for_jobs
layout_6 2; wait_for_jobs
layout_9 2; wait_for_jobs
layout_1 2; wait_for_jobs
layout_7 3; wait_for_jobs
layout_4 3; wait_for_jobs
layout_6 3; wait_for_jobs
layout_1 3; wait_for_jobs
layout_2 3; wait_for_jobs
layout_9 3; wait_for_jobs
layout_5 3; wait_for_jobs
layout_8 3; wait_for_jobs
layout_3 3; wait_for_jobs
layout_5 4; wait_for_jobs
layout_3 4; wait_for_jobs
layout_2 4; wait_for_jobs
layout_8 4; wait_for_jobs
layout_7 4; wait_for_jobs
layout_4 4; wait_for_jobs
layout_1 4; wait_for_jobs
layout_6 4; wait_for_jobs
layout_9 4; wait_for_jobs
layout_3 5; wait_for_jobs
layout_2 5; wait_for_jobs
layout_4 5; wait_for_jobs
layout_9 5; wait_for_jobs
layout_6 5; wait_for_jobs
layout_1 5; wait_for_jobs
layout_5 5; wait_for_jobs
layout_7 5; wait_for_jobs
layout_8 5; wait_for_jobs

exit "$status"
