"""Group-wise preference training: rankings, pairs and the DPO loss. Pure tensors, no configuration, no I/O.

    borda_B = borda(rewards_B_K, group_ids_B)               ranks in the group, added over the rewards
    quantile_B = quantile_scores(rewards_B_K)               quantiles in the batch, added over the rewards
    pairs = select(group_ids_B, borda_B, quantile_B)        a winner and a loser of each group that is used
    logp_B = response_logp(logp_B_T, mask_B_T)              log-probability of whole responses
    loss_N, margin_N = dpo(winner_N, loser_N, ...)          arXiv 2305.18290, eq. 7

Another algorithm than GDPO of arXiv 2601.05242: it has no advantages. See docs/preference.md.
"""

from gdpo_nemo.preference.loss import dpo, response_logp
from gdpo_nemo.preference.ranking import borda, quantile_scores
from gdpo_nemo.preference.selection import Pairs, select

__all__ = ["Pairs", "borda", "dpo", "quantile_scores", "response_logp", "select"]
