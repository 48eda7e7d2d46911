"""GDPO for NeMo RL: a plug-in, and a rehearsal of the real loop on a CPU. Everything that imports ``nemo_rl``.

host         which NeMo RL, and the environment of processes that use it
upstream     probes for what differs between the supported versions
estimator    named rewards of a rollout batch to token-level advantages
batches      what the plug-in reads from, and repairs in, NeMo RL's rollout batches
environment  a Ray actor that answers with named rewards
grading      what that costs a step
dataset      rows of any source as a NeMo RL data set, and their processor
master_config  asks NeMo RL's own configuration classes, in a process of its own
record       what NeMo RL logs, as the run directory keeps it
alarms       the monitor of a run
plugin       puts all of that into NeMo RL's registries
__main__     registers, then runs NeMo RL's own main
rehearsal    the same main on a CPU: another policy, another engine, and a resume
"""
