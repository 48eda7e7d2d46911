"""Log-probabilities of responses under a model; what responses begin with in common is computed once.

Rollouts are packed into prefix trees, and a mask lets each token see the way from the root to itself.
"""

from __future__ import annotations

from itertools import chain, compress
from operator import eq, itemgetter
from typing import Any

import torch
from torch import Tensor

from gdpo_nemo.advantages.kl_in_reward import sequence_kl
from gdpo_nemo.models.sampling import Samples, additive_mask, positions


def log_probs(model: Any, samples: Samples, rows_b: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [b, R] of the response tokens of some rollouts, in nats; 0 on padding.

    Args:
        model: any causal LM; gradients flow unless the caller has switched them off.
        samples: the rollouts.
        rows_b: which of them.
        temperature: logits are divided by it; that of sampling gives the log-probs that the tokens were drawn with.
    """
    ids, attention, is_response = samples.ids_B_T[rows_b], samples.attention_B_T[rows_b], samples.response_B_R[rows_b]
    width = ids.shape[1] - is_response.shape[1]
    sequences = [list(compress(*row)) for row in zip(ids.tolist(), attention.tolist(), strict=True)]
    # In a tree of twice the hidden size, attention costs a third of the matrix products.
    trees, nodes, ends = _prefix_trees(sequences, largest=2 * model.config.get_text_config().hidden_size)
    tree_b_T = torch.tensor(trees, device=ids.device)[:, None].expand_as(ids)
    node_b_T = torch.zeros_like(ids).masked_scatter(attention, torch.tensor(list(chain(*nodes)), device=ids.device))
    end = torch.nn.utils.rnn.pad_sequence([torch.tensor(end) for end in ends], batch_first=True).to(ids.device)
    packed = ids.new_zeros(2, *end.shape)
    packed[:, tree_b_T[attention], node_b_T[attention]] = torch.stack([ids, positions(attention)])[:, attention]
    node = torch.arange(end.shape[1], device=ids.device)
    sees = (node <= node[:, None]) & (node[:, None] < end[:, None])
    kept, before = node_b_T[:, width - 1 : -1][is_response].unique(return_inverse=True)
    logits = model(
        input_ids=packed[0], attention_mask=additive_mask(sees, model.dtype), position_ids=packed[1],
        logits_to_keep=kept, use_cache=False,
    ).logits  # fmt: skip
    log_softmax = torch.log_softmax(logits.float() / temperature, dim=-1)
    logp = log_softmax[tree_b_T[:, width:][is_response], before, ids[:, width:][is_response]]
    return logp.new_zeros(is_response.shape).masked_scatter(is_response, logp)


def response_kl(
    model: Any, reference: Any, samples: Samples, temperature: float, rows_at_once: int | None = None
) -> Tensor:
    """``sequence_kl`` of every rollout, float64 [B] on the CPU; ``rows_at_once`` of them are computed together."""
    everything = torch.arange(len(samples.ids_B_T), device=samples.ids_B_T.device)
    parts = []
    with torch.no_grad():
        for rows in everything.split(rows_at_once or len(everything)):
            logp, reference_logp = (log_probs(one, samples, rows, temperature) for one in (model, reference))
            parts.append(sequence_kl(logp, reference_logp, samples.response_B_R[rows]).cpu())
    return torch.cat(parts)


def _prefix_trees(sequences: list[list[int]], largest: int) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Pack sequences into trees of at most ``largest`` nodes; only a sequence by itself makes a larger one.

    Returns the tree of each sequence; the nodes of its tokens; and for each tree and node the first after its branch.
    """
    trees, nodes, ends = [0] * len(sequences), [[0]] * len(sequences), list[list[int]]()
    last, path = list[int](), list[int]()
    for i, sequence in sorted(enumerate(sequences), key=itemgetter(1)):  # the most alike follow each other
        shared = [*map(eq, sequence, last), False].index(False)
        if not ends or len(ends[-1]) + len(sequence) - shared > largest:
            ends.append([])
            shared, path = 0, []
        end = ends[-1]
        for node in path[shared:]:
            end[node] = len(end)
        path = path[:shared] + list(range(len(end), len(end) + len(sequence) - shared))
        end += [largest + len(sequence)] * (len(sequence) - shared)  # open as yet
        trees[i], nodes[i], last = len(ends) - 1, path, sequence
    return trees, nodes, ends
