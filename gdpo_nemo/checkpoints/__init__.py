"""Checkpoints that NeMo RL wrote: find one, refuse to resume a different run from it, export it, verify the export.

steps    which checkpoints there are, and in which format their weights lie
resume   what a run and its checkpoint must have in common
export   NeMo RL's converters, to Hugging Face format
verify   logits of an export against those of its source
"""

from gdpo_nemo.checkpoints.export import Exported, ExportOptions, export
from gdpo_nemo.checkpoints.resume import check_resume
from gdpo_nemo.checkpoints.steps import Checkpoint, find, newest_step

__all__ = ["Checkpoint", "ExportOptions", "Exported", "check_resume", "export", "find", "newest_step"]
