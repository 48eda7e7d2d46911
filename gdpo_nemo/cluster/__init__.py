"""Runs on a cluster with NeMo RL: compose a configuration, check it, and say what it needs. No GPU, no NeMo RL."""
