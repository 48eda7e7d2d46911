"""Runs model-written Python where it can neither harm the machine nor lie about what it did.

    jobs        what is asked and answered: Job, Limits, JobResult, the Sandbox protocol
    pool        the local sandbox: one warm process per core, a fork for each test
    opening     a sandbox by name
    isolation   the layers that keep programs apart, by name
    inside      what runs in the processes that keep the programs

It knows nothing of rewards, and never sees an expected answer: comparing is the caller's part. docs/sandbox.md has
the threat model.
"""
