"""Exact parameter counts of dense Llama, Qwen2 and Qwen3 models, whole and of one rank of a parallel layout."""

from __future__ import annotations

from dataclasses import dataclass

from gdpo_nemo.cluster.architectures import Architecture


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters.

    Attributes:
        embedding: the table of input embeddings.
        layer_split: of one layer, what tensor parallelism splits.
        layer_whole: of one layer, what every rank holds (norms).
        final_norm: the last norm.
        head: the output matrix; 0 where it is the embedding.
        num_layers: layers.
    """

    embedding: int
    layer_split: int
    layer_whole: int
    final_norm: int
    head: int
    num_layers: int

    @property
    def total(self) -> int:
        """All parameters of the model."""
        layers = self.num_layers * (self.layer_split + self.layer_whole)
        return self.embedding + layers + self.final_norm + self.head

    @property
    def used_per_token(self) -> int:
        """Parameters that take part in a matrix product for each token: all but the input embedding."""
        return self.total - self.embedding + (0 if self.head else self.embedding)

    def largest_rank(self, tp: int, pp: int) -> int:
        """Parameters of the rank that holds the most, with layers spread evenly over ``pp`` stages.

        A tied embedding has a copy on the last stage, too.
        """
        layers = -(-self.num_layers // pp) * (self.layer_split / tp + self.layer_whole)
        head = self.head or self.embedding
        if pp == 1:
            return round(layers + self.final_norm + (self.embedding + self.head) / tp)
        return round(layers + max(self.embedding / tp, head / tp + self.final_norm))


def count(architecture: Architecture) -> Parameters:
    """Count from sizes.

    Qwen2 adds a bias to queries, keys and values; Qwen3 adds a norm of each query and key head.
    """
    a = architecture
    attention = a.hidden_size * (a.query_size + 2 * a.kv_size) + a.query_size * a.hidden_size
    bias = a.query_size + 2 * a.kv_size if a.model_type == "qwen2" else 0
    head_norms = 2 * a.head_dim if a.model_type == "qwen3" else 0
    table = a.vocab_size * a.hidden_size
    return Parameters(
        embedding=table,
        layer_split=attention + bias + 3 * a.hidden_size * a.intermediate_size,
        layer_whole=2 * a.hidden_size + head_norms,
        final_norm=a.hidden_size,
        head=0 if a.tie_word_embeddings else table,
        num_layers=a.num_hidden_layers,
    )
