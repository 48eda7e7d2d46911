"""How much the responses to different prompts repeat each other: a policy that says one thing to everybody.

Of the first response to each of P prompts, cut to what fits into ``MOST_CHARACTERS`` together:

    ngrams       sum_g c_g (c_g - 1) / ((P - 1) sum_g c_g)    c_g: prompts whose response has the word 4-gram g
    compression  (1 - C(all) / sum_p C(p)) P / (P - 1)        C: bytes after DEFLATE

``ngrams`` is the share of a response's 4-grams that the response to another prompt has as well, over all pairs: 1 when
all are the same, 0 when no two share one. Words are runs of letters and digits, and single other signs; a response
of less than four is one 4-gram by itself. ``compression`` is the share of bytes that compressing the responses together
saves over compressing each, of the share 1 - 1/P that it would save if all were the same and the copies were free.
Responses that must share a format share n-grams from the start, so a level says little, and a change something.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence

N = 4
MOST_CHARACTERS = 32_000
"""DEFLATE looks back 32 KiB: farther apart, it does not see that two responses are the same."""
WORD = re.compile(r"\w+|[^\w\s]")


def repetition(responses: Sequence[str]) -> dict[str, float]:
    """``repeated/ngrams`` and ``repeated/compression``, each in [0, 1]; nothing for fewer than two prompts.

    Args:
        responses: one for each of P prompts.
    """
    if len(responses) < 2:
        return {}
    most = MOST_CHARACTERS // len(responses)
    texts = [response[:most] for response in responses]
    counts = Counter(gram for text in texts for gram in _grams(WORD.findall(text))).values()
    together = sum(count * (count - 1) for count in counts) / ((len(texts) - 1) * sum(counts))
    saved = 1 - _size("\n".join(texts)) / sum(map(_size, texts))
    most_saved = 1 - 1 / len(texts)
    return {"repeated/ngrams": together, "repeated/compression": min(1.0, max(0.0, saved / most_saved))}


def _grams(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + N]) for i in range(max(1, len(words) - N + 1))}


def _size(text: str) -> int:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)  # without header
    return len(compressor.compress(text.encode("utf-8", "replace")) + compressor.flush())
