#!/usr/bin/env bash
# A SLURM of one node on loopback: `setup.sh FOLDER` starts it, `teardown.sh FOLDER` ends it.
# Needs root and Debian's slurmctld, slurmd and munge, which it installs where they are missing.
# Everything it writes lies in FOLDER; use it with `export SLURM_CONF=FOLDER/slurm.conf`.
set -euo pipefail

folder=$1
cpus=${2:-2} # may be more than there are

if ! command -v slurmctld slurmd munged sbatch > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -yq --no-install-recommends slurmctld slurmd slurm-client munge
fi

mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
host=$(hostname -s)

# A munge of our own: no other on this machine is touched.
dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 status=none
chmod 700 "$folder/munge"
chmod 400 "$folder/munge/key"
munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"

cat > "$folder/slurm.conf" << END
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=4096 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END

export SLURM_CONF=$folder/slurm.conf
slurmctld
slurmd
for _ in $(seq 60); do
    if sinfo --noheader --format=%T 2> /dev/null | grep -q idle; then
        sinfo
        exit 0
    fi
    sleep 0.5
done
echo "SLURM did not start:" >&2
tail -n 20 "$folder/slurmctld.log" "$folder/slurmd.log" >&2
exit 1
