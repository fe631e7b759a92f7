#!/bin/bash
# Workers that come and go, each a job of its own that the scheduler may end and start again:
#   sbatch --array=1-8 --export=ALL,HUB=login.example:7100 examples/slurm/worker.sh
# The hub is elsewhere, on the login node or as a job: tersewire hub --workers 4 --min-workers 1 --max-workers 8 ...
#SBATCH --job-name=tersewire-worker
#SBATCH --ntasks=1
#SBATCH --requeue
# A minute before it has to go: the worker ends its step, hands over what it has not sent, and ends with 0.
#SBATCH --signal=TERM@60
set -eu

exec srun tersewire train --model lenet --exchange all-gather --codec 3lc --workers 4 --elastic --notice 60s \
  --transport "grpc:hub=$HUB,name=worker-$SLURM_ARRAY_TASK_ID,insecure=on" --out run
