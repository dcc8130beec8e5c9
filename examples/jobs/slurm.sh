#!/bin/bash
# Tessera under Slurm: four hosts with two GPUs each, one rank per GPU. docs/cluster.md says more.
#SBATCH --job-name=tessera
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH --time=00:30:00
set -eu

# On storage that all hosts see: measurements and compiled kernels outlive the job.
export TESSERA_CACHE=${TESSERA_CACHE:-$HOME/.cache/tessera}

# MPICH's mpiexec finds the job's hosts, and starts its helpers by srun, by itself.
mpiexec -n "$SLURM_NTASKS" -ppn 2 -bind-to numa \
  tessera run ffn 512 8192 32768 --check
