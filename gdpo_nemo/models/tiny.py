"""A tiny Qwen2 over the task's own phrases.

Its vocabulary holds the phrases of a procedural world as whole tokens ("book_train",
``{"name": "``, a whole tool description), so that real prompts and responses stay short;
for rows of your own it is learned from their texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from gdpo_nemo.config import ModelConfig
from gdpo_nemo.worlds import World, phrases

END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"
OWN_VOCABULARY = 1024  # tokens of a vocabulary learned from the user's texts, 262 of them bytes and markers
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def build_tokenizer(world: World) -> Any:
    """A Hugging Face tokenizer whose tokens are the phrases of the world; decoding is exact."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    pieces = list(dict.fromkeys(phrases(world)))
    vocabulary = {token: i for i, token in enumerate([PAD, END, UNKNOWN, *pieces])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    longest_first = sorted(pieces, key=len, reverse=True)
    pattern = Regex("|".join(re.escape(piece) for piece in longest_first))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return _with_chat(tokenizer)


def learn_tokenizer(texts: Sequence[str]) -> Any:
    """A byte-level BPE tokenizer learned from some texts: common words become one token, and any text can be read."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=OWN_VOCABULARY,
        special_tokens=[PAD, END, UNKNOWN, "<|system|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _with_chat(tokenizer)


def _with_chat(tokenizer: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_tiny(config: ModelConfig, vocab_size: int, seed: int) -> Any:
    """A randomly initialised Qwen2 causal LM of the configured size."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_heads,
                max_position_embeddings=512,
                initializer_range=0.08,  # at this width the usual 0.02 learns the facts four times slower
                tie_word_embeddings=True,
                pad_token_id=0,
                eos_token_id=1,
                bos_token_id=None,
            )
        )
