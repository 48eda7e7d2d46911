"""Row -> Prompt. Templates are text files beside this module; their hash is part of every run."""
