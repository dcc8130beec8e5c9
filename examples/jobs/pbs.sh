#!/bin/bash
# Tessera under PBS Professional or OpenPBS: four hosts with two GPUs each, one rank per GPU. docs/cluster.md says more.
#PBS -N tessera
#PBS -l select=4:ncpus=16:mpiprocs=2:ngpus=2
#PBS -l place=scatter
#PBS -l walltime=00:30:00
set -eu
cd "$PBS_O_WORKDIR"

# On storage that all hosts see: measurements and compiled kernels outlive the job.
export TESSERA_CACHE=${TESSERA_CACHE:-$HOME/.cache/tessera}

# The node file has a line for each rank. mpiexec gets to the other hosts by ssh.
mpiexec -launcher ssh -f "$PBS_NODEFILE" -n "$(wc -l <"$PBS_NODEFILE")" -bind-to numa \
  tessera run ffn 512 8192 32768 --check
