#!/bin/bash
# One job of four workers, all of one allocation: sbatch examples/slurm/job.sh
#SBATCH --job-name=tersewire
#SBATCH --ntasks=4
#SBATCH --requeue
# Submitted again, or started again by Slurm, it goes on from its last checkpoint, in the same directory.
set -eu
hub=$(hostname):7100

tersewire hub --workers "$SLURM_NTASKS" --servers 0 --listen 0.0.0.0:7100 --insecure &
srun --kill-on-bad-exit=1 sh -c 'exec tersewire train --model lenet --exchange all-gather --codec 3lc \
  --workers "$SLURM_NTASKS" --transport "grpc:hub=$0,rank=$SLURM_PROCID,insecure=on" \
  --resume-or-start --out run --checkpoint-steps 100' "$hub"
wait
