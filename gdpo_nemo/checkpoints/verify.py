"""Is an export the model of its checkpoint? Logits of one prompt, on the CPU, one model in memory at a time.

The source is loaded on a way of its own where that needs no GPU: weights in Hugging Face format by transformers,
weights in PyTorch's distributed format by PyTorch into the architecture that the run trained (with its own changes to
the base model's config.json). Megatron's format cannot be loaded without a GPU: there a second load must give the same,
finite logits, which shows that the export can be read, not that it is the checkpoint's model.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.checkpoints.converters import overrides_of
from gdpo_nemo.checkpoints.steps import DCP, HUGGING_FACE, Checkpoint
from gdpo_nemo.errors import GdpoError, PrerequisiteError

if TYPE_CHECKING:
    import torch

PROMPT = "Which is larger, 9.11 or 9.9? Think step by step, then answer."
TOLERANCE = 1e-4
"""Largest difference of two logits, relative to the largest logit; the same weights in the same precision give 0."""
SOURCE, SECOND_LOAD = "the checkpoint's own weights", "a second load of the export"


class ExportError(GdpoError, RuntimeError):
    """A converter failed, or what it wrote is not the checkpoint's model."""


@dataclass(frozen=True)
class Verification:
    """The outcome for one prompt.

    Attributes:
        against: what the logits were compared with.
        tokens: of the prompt.
        difference: the largest of two logits, absolute.
        same_tokens: whether the export's tokenizer, as transformers loads it, gives the trained one's tokens.
    """

    against: str
    tokens: int
    difference: float
    same_tokens: bool

    @property
    def text(self) -> str:
        """For a person."""
        note = "" if self.same_tokens else "; its tokenizer loads as another class than in training, so name the class"
        return f"logits of {self.tokens} tokens differ by {self.difference:g} from {self.against}{note}"


def verify(folder: Path, checkpoint: Checkpoint, base_model: str) -> Verification:
    """Compare an export with its source.

    Args:
        folder: the export.
        checkpoint: where it came from.
        base_model: whose config.json the run started from.

    Raises:
        PrerequisiteError: transformers is missing.
        ExportError: logits are not finite or differ, or the tokenizer gives other tokens.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise PrerequisiteError(
            f"verifying an export needs {error.name}; pip install 'gdpo-nemo[embedded]', or leave it out (--no-verify)"
        ) from error
    form, source = checkpoint.source
    ids = list(AutoTokenizer.from_pretrained(checkpoint.tokenizer)(PROMPT)["input_ids"])
    same_tokens = ids == list(AutoTokenizer.from_pretrained(folder)(PROMPT)["input_ids"])
    if not same_tokens and form != HUGGING_FACE:  # a rehearsal's own tokenizer has no class of its architecture
        raise ExportError(f"the tokenizer in {folder} does not give the tokens of {checkpoint.tokenizer}")

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    dtype = model.dtype
    ids = [token for token in ids if token < model.config.get_text_config().vocab_size]
    found = _logits(model, ids)
    del model
    gc.collect()
    if not bool(torch.isfinite(found).all()):
        raise ExportError(f"the export of {checkpoint.path} gives logits that are not finite")
    if form == DCP:
        other = _logits(_from_distributed(checkpoint, source, base_model, dtype), ids)
    else:
        place = source if form == HUGGING_FACE else folder
        other = _logits(AutoModelForCausalLM.from_pretrained(place, dtype=dtype), ids)
    against = SOURCE if form in (DCP, HUGGING_FACE) else SECOND_LOAD
    difference = float((found - other).abs().max())
    if not difference <= TOLERANCE * float(other.abs().max()):
        raise ExportError(f"logits of the export of {checkpoint.path} differ by {difference:g} from {against}")
    return Verification(against, len(ids), difference, same_tokens)


def _logits(model: Any, ids: list[int]) -> torch.Tensor:
    """Float32 logits [T, vocabulary] of one sequence."""
    import torch

    with torch.no_grad():
        logits: torch.Tensor = model.eval()(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits


def _from_distributed(checkpoint: Checkpoint, folder: Path, base_model: str, dtype: torch.dtype) -> Any:
    """The model that the run trained, with weights read by PyTorch."""
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(base_model, **overrides_of(checkpoint))
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    state: dict[str, Any] = {}
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    weights = state.get("model", state)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = {"lm_head.weight"} if config.get_text_config().tie_word_embeddings else set()
    lost = sorted({*missing, *unexpected} - tied)
    if lost:
        raise ExportError(f"{folder} does not hold the weights of {base_model}: {', '.join(lost[:4])}")
    return model
