"""What runs in the process that keeps untrusted programs: standard library only, nothing of the caller's.

These modules are loaded by a fresh interpreter and inherited by every program, so nothing here may hold a secret.
"""
