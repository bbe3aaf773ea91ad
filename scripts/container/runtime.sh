#!/usr/bin/env bash
# The run stage of an image, before the program is copied: Open MPI, the libraries of RDMA devices,
# and a user who may start sshd, by whom Kubeflow's MPI operator starts ranks in the pods of others.
# For root of a Debian or Ubuntu.
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends openmpi-bin openssh-client openssh-server \
  rdma-core ibverbs-providers libibverbs1 librdmacm1 numactl
apt-get clean
rm -rf /var/lib/apt/lists/*

if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu; fi # has the number of ours
useradd --create-home --uid 1000 --shell /bin/bash nearmetal
install -d -o nearmetal -g nearmetal -m 700 /home/nearmetal/.ssh
ln -s /opt/nearmetal/bin/nearmetal /usr/local/bin/nearmetal

# The operator mounts the keys of a job, of which that of the user is that of the host, too: each job
# has new ones, so that there is nothing to know a host by. Ports below 1024 are root's.
mkdir -p /run/sshd
rm -f /etc/ssh/ssh_host_*
cat >/etc/ssh/sshd_config.d/nearmetal.conf <<'TEXT'
Port 2222
HostKey /home/nearmetal/.ssh/id_rsa
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
TEXT
cat >/etc/ssh/ssh_config.d/nearmetal.conf <<'TEXT'
Host *
  Port 2222
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
TEXT
