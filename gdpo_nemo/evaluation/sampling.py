"""What every benchmark asks and every model answers: one completion of one conversation.

The ways in which a request can end without one are exceptions, told apart by what to do about them:

    TransientError       ask again: busy, broken connection, late, an answer that cannot be read
    UnreachableError     a transient one: nobody listens; many in a row mean that the server is gone
    RejectedError        this request will never be answered, others may be: it is a failure of its sample
    ContextOverflowError a rejected one: prompt and answer do not fit the model's context
    PrerequisiteError    no request will ever be answered: wrong key, wrong address
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gdpo_nemo.errors import GdpoError

Messages = Sequence[Mapping[str, Any]]
LENGTH = "length"


@dataclass(frozen=True)
class SamplingParams:
    """How an answer is drawn.

    Attributes:
        temperature: of the softmax; 0 is greedy.
        top_p: mass of the likeliest tokens that are drawn from.
        max_tokens: longest answer.
        seed: of this request; None leaves it to the model.
        stop: texts that end an answer.
        extra: more keys of a request to an endpoint; samplers in this process know ``tools`` and refuse others.
    """

    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 32768
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self) | {"stop": list(self.stop), "extra": dict(self.extra)}


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        text: what was said; reasoning that a server reports apart is put in front in ``<think>`` tags.
        finish_reason: ``stop``, ``length`` where the limit cut it, or another word of the server's.
        prompt_tokens: length of the conversation, None where unknown.
        completion_tokens: length of the answer without the end token, None where unknown. Servers that do not say
            (``stop_reason``, as vLLM's does) whether an end token is in their count are taken at their word.
        tool_calls: in the form of the OpenAI interface, where the server read them out of the text.
    """

    text: str
    finish_reason: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()


class Sampler(Protocol):
    """A model that completes conversations, many at once."""

    def describe(self) -> dict[str, Any]:
        """What is asked, for the header of an evaluation: equal for equal models, without secrets."""

    async def complete(self, messages: Messages, params: SamplingParams) -> Completion:
        """Answer one conversation.

        Raises:
            TransientError, RejectedError, PrerequisiteError: see the module.
        """

    async def close(self) -> None:
        """Let go of connections and devices."""


class SamplingError(GdpoError, RuntimeError):
    """A request without an answer.

    Attributes:
        kind: short name by which failures are counted.
        attempts: how often it was made.
    """

    kind = "error"
    attempts = 1


class TransientError(SamplingError):
    """The same request may be answered later; ``retry_after_s`` is when the server wants to be asked, if it said."""

    kind = "broken"

    def __init__(self, message: str, *, kind: str = "broken", retry_after_s: float | None = None) -> None:
        """Say what happened, by which short name it is counted, and how long to wait."""
        super().__init__(message)
        self.kind, self.retry_after_s = kind, retry_after_s


class UnreachableError(TransientError):
    """Nobody listens at the address."""

    def __init__(self, message: str) -> None:
        """Say what was tried."""
        super().__init__(message, kind="unreachable")


class RejectedError(SamplingError):
    """The server understood the request and will not answer it."""

    kind = "rejected"


class ContextOverflowError(RejectedError):
    """Prompt and answer do not fit the model's context."""

    kind = "context_overflow"
