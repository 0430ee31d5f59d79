#!/usr/bin/env bash
# Ends the SLURM that `setup.sh FOLDER` started, with its jobs.
set -uo pipefail

folder=$1
export SLURM_CONF=$folder/slurm.conf
scancel --user=root 2> /dev/null
for file in slurmd.pid slurmctld.pid munge/pid; do
    [ -s "$folder/$file" ] && kill "$(cat "$folder/$file")"
done
for _ in $(seq 20); do
    [ -e "$folder/slurmctld.pid" ] || [ -e "$folder/slurmd.pid" ] || break
    sleep 0.5
done
exit 0
