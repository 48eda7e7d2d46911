"""A megatron-core GPT of 4 layers, in any layout with the same weights.

Grouped-query attention, biases and norms of queries and keys, RMSNorm, SwiGLU, RoPE: what Llama, Qwen2 and
Qwen3 have. A weight follows from its name in the whole model, so no process needs the weights of another.
"""

import zlib
from collections.abc import Iterator

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from rollout_batch import NUM_TOKENS, VOCABULARY
from shards import Shard, cut

TIED = "embedding.word_embeddings.weight"


def build(tensor_parallel: int, pipeline_parallel: int, *, tied: bool) -> GPTModel:
    """This process's part of the model, on the CPU, in float32, without dropout and without fused kernels."""
    config = TransformerConfig(
        num_layers=4,
        hidden_size=64,
        ffn_hidden_size=96,
        num_attention_heads=4,
        num_query_groups=2,
        tensor_model_parallel_size=tensor_parallel,
        pipeline_model_parallel_size=pipeline_parallel,
        pipeline_dtype=torch.float32,
        normalization="RMSNorm",
        layernorm_epsilon=1e-6,
        qk_layernorm=True,
        add_qkv_bias=True,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        use_cpu_initialization=True,
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm"),
        vocab_size=VOCABULARY,
        max_sequence_length=NUM_TOKENS,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=tied,
        position_embedding_type="rope",
    )


def parameters(model: GPTModel) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The parameters by their names in the whole model: layers counted over all stages, one name for tied weights."""
    number = {str(i): str(layer.layer_number - 1) for i, layer in enumerate(model.decoder.layers)}
    for name, parameter in model.named_parameters():
        if name.startswith("decoder.layers."):
            parts = name.split(".")
            parts[2] = number[parts[2]]
            name = ".".join(parts)
        elif name == "output_layer.weight" and model.share_embeddings_and_output_weights:
            name = TIED
        yield name, parameter


def shard(parameter: torch.nn.Parameter, value: torch.Tensor) -> Shard:
    """A value of this parameter (its data, its gradient) with what megatron-core says about its partition."""
    parallel = getattr(parameter, "tensor_model_parallel", False)
    return Shard(value, parameter.partition_dim if parallel else None, parameter.partition_stride if parallel else 1)


@torch.no_grad()
def set_weights(model: GPTModel, *, moved: bool) -> None:
    """The weights of the policy that sampled, or those some updates later (``moved``)."""
    size = parallel_state.get_tensor_model_parallel_world_size()
    rank = parallel_state.get_tensor_model_parallel_rank()
    for name, parameter in parameters(model):
        mine = shard(parameter, parameter)
        shape = list(parameter.shape)
        if mine.dim is not None:
            shape[mine.dim] *= size
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        full = torch.randn(shape, generator=generator) * 0.15 + ("norm" in name)
        if moved:
            full += torch.randn(shape, generator=generator) * 0.005
        parameter.copy_(full if mine.dim is None else cut(full, mine.dim, mine.stride, size)[rank])
