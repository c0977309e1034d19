# Read by both job scripts. Every line can be set in the environment of sbatch instead.

# A checkout with its .venv, a run directory and the keys, all on the disk that every node sees.
: "${VEDETTE_HOME:=$SLURM_SUBMIT_DIR}"
: "${VEDETTE_RUN:=$VEDETTE_HOME/runs/slurm}"
: "${VEDETTE_FLEET_KEYS:=$VEDETTE_HOME/keys}"
: "${VEDETTE_PORT:=5555}"
: "${VEDETTE_WAIT:=600}" # seconds that actors wait for a learner that does not answer; 0: as long as they may
: "${VEDETTE_CONFIG:=}" # a TOML file; VEDETTE_ENV, VEDETTE_AGENT and VEDETTE_SET are heeded, too
: "${VEDETTE:=$VEDETTE_HOME/.venv/bin/vedette}"

# run_until_told COMMAND...: runs it, and passes on what Slurm says before a time limit or a preemption.
# Sets `status`, and `told` if Slurm spoke.
run_until_told() {
    told=""
    "$@" &
    child=$!
    trap 'told=yes; kill -TERM "$child" 2>/dev/null' TERM
    wait "$child"
    status=$?
    if [ -n "$told" ]; then # the signal ended the waiting, not the command
        wait "$child"
        status=$?
    fi
    trap - TERM
}

# requeue_if_told JOB: whoever was stopped by a limit begins again where it was, on any node.
requeue_if_told() {
    if [ -n "$told" ] && [ "$status" -eq 0 ]; then
        echo "stopped by Slurm in good order; queueing again"
        scontrol requeue "$1"
    fi
    exit "$status"
}
