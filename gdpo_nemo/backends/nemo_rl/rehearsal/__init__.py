"""NeMo RL's own main on a CPU: a small policy and generation engine in place of the GPU workers, all else real."""
