#!/usr/bin/env bash
# sbatch examples/train_on_slurm.sh RECIPE --out RUN [more options of jointnmt train]
#
# Five minutes before the end of the job's time, and on preemption, the training saves and the job is queued again.
# RUN and the data are on a file system that all nodes share; docs/many-machines.md says what to do without one.
#SBATCH --job-name=jointnmt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -u

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # restarted workers do not look for the previous ones
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

warned=
warn() {
    warned=yes
    scancel --signal=TERM "$SLURM_JOB_ID" # to srun's processes, not to this script: torchrun passes it on
}
trap warn USR1 TERM

srun torchrun --nnodes "1:$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" --max-restarts 10 \
    --rdzv-backend c10d --rdzv-endpoint "$first:29500" --rdzv-id "$SLURM_JOB_ID" -m jointnmt train "$@" &
while true; do
    wait $!
    code=$?
    kill -0 $! 2> /dev/null || break # otherwise a signal has ended the wait
done
if [ -n "$warned" ] && [ $code -ne 0 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
