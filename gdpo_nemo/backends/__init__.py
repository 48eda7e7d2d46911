"""Training backends. Everything left of the loss is shared; see ``gdpo_nemo.method``."""
