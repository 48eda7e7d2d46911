"""An OpenAI-compatible server: ``/chat/completions``, or ``/completions`` with a chat template applied here.

A request is answered whole (no streaming), and within its time-out. Redirects are not followed: they would carry the
key to another host.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from gdpo_nemo.errors import PrerequisiteError
from gdpo_nemo.evaluation.samplers.chat_template import ChatTemplate
from gdpo_nemo.evaluation.sampling import (
    Completion,
    ContextOverflowError,
    Messages,
    RejectedError,
    SamplingParams,
    TransientError,
    UnreachableError,
)
from gdpo_nemo.rewards.judge import BUSY, WRONG, check_address

CONNECT_TIMEOUT_S = 30.0
SAID = 300  # characters of an answer that a message quotes
ENDED = {"stop", "tool_calls"}
UNFINISHED = {"abort", "error"}  # a server that goes down says so
OVERFLOW = re.compile(
    r"context.?(?:length|window)|maximum.{0,20}length|max_model_len|too many tokens|(?:prompt|input).{0,20}too long"
    r"|max_(?:completion_)?tokens.{0,40}too large",
    re.IGNORECASE,
)


class Endpoint:
    """A served model."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key_env: str | None = None,
        timeout_s: float = 3600.0,
        template: ChatTemplate | None = None,
    ) -> None:
        """Name what is asked.

        Args:
            url: base address, e.g. ``http://localhost:8000/v1``.
            model: the model's name there; None: the only one that ``/models`` lists.
            api_key_env: name of the environment variable that holds the key; it is sent and never written.
            timeout_s: of one attempt.
            template: makes prompts, tools in them; then ``/completions`` is asked instead of ``/chat/completions``.

        Raises:
            InputError: the address is none.
            PrerequisiteError: httpx is missing, or the environment has no such variable.
        """
        check_address(url)
        try:
            import httpx
        except ImportError as error:
            raise PrerequisiteError("an endpoint needs httpx: pip install 'gdpo-nemo[eval]'") from error
        headers = {"User-Agent": "gdpo-nemo"}
        if api_key_env is not None:
            if not os.environ.get(api_key_env):
                raise PrerequisiteError(f"the environment variable {api_key_env} (--api-key-env) is not set")
            headers["Authorization"] = f"Bearer {os.environ[api_key_env]}"
        self.url, self.model, self.timeout_s, self.template = url.rstrip("/"), model, timeout_s, template
        self._httpx, self._headers = httpx, headers
        self._client: Any = None

    def describe(self) -> dict[str, Any]:
        """The served name and the kind of request; the address may change between two runs."""
        kind = "completions" if self.template else "chat"
        return {"kind": f"endpoint/{kind}", "name": self.served_name()}

    def served_name(self) -> str:
        """The model's name at the server, asked for where it was not given.

        Raises:
            PrerequisiteError: the server does not say, or has several.
        """
        if self.model is None:
            address = f"{self.url}/models"
            try:
                answer = self._httpx.get(address, headers=self._headers, timeout=CONNECT_TIMEOUT_S)
                names = [entry["id"] for entry in answer.json()["data"]]
            except (self._httpx.HTTPError, ValueError, LookupError, TypeError) as error:
                raise PrerequisiteError(
                    f"{address} does not tell the model's name ({type(error).__name__}: {error}); "
                    "is the server up? Name the model with --served-model-name"
                ) from error
            if len(names) != 1:
                raise PrerequisiteError(
                    f"{address} has {', '.join(names) or 'no model'}; --served-model-name picks one"
                )
            self.model = str(names[0])
        return self.model

    async def complete(self, messages: Messages, params: SamplingParams) -> Completion:
        """One POST.

        Raises:
            TransientError, RejectedError, PrerequisiteError: see ``evaluation.sampling``.
        """
        body: dict[str, Any] = {"model": self.model, "temperature": params.temperature, "top_p": params.top_p}
        body["max_tokens"] = params.max_tokens
        body |= {"seed": params.seed} if params.seed is not None else {}
        body |= {"stop": list(params.stop)} if params.stop else {}
        body |= params.extra
        if self.template:
            body["prompt"] = self.template.prompt(messages, body.pop("tools", ()))
        else:
            body["messages"] = [dict(message) for message in messages]
        path = "/completions" if self.template else "/chat/completions"
        return _completion(await self._post(path, body), params)

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        httpx, address = self._httpx, self.url + path
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
            self._client = httpx.AsyncClient(headers=self._headers, limits=limits, timeout=timeout)
        try:
            async with asyncio.timeout(self.timeout_s):
                answer = await self._client.post(address, json=body)
        except TimeoutError as error:
            raise TransientError(f"{address} did not answer within {self.timeout_s:g} s", kind="timeout") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UnreachableError(f"{address} cannot be reached: {error or type(error).__name__}") from error
        except httpx.HTTPError as error:
            raise TransientError(f"{address} broke off: {error or type(error).__name__}", kind="broken") from error
        if answer.status_code != 200:
            _refuse(
                address, answer.status_code, answer.reason_phrase, answer.content, answer.headers.get("Retry-After")
            )
        content: bytes = answer.content
        return content

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _refuse(address: str, status: int, reason: str, content: bytes, retry_after: str | None) -> None:
    said = content[:SAID].decode("utf-8", "replace").strip()
    message = f"{address} answers {status} {reason}: {said}"
    if status in BUSY or status >= 500:
        raise TransientError(message, kind=f"http_{status}", retry_after_s=seconds_until(retry_after))
    if status in WRONG:
        raise PrerequisiteError(f"{message}; look at --endpoint, --served-model-name and --api-key-env")
    if status in (400, 413, 422) and OVERFLOW.search(content.decode("utf-8", "replace")):
        raise ContextOverflowError(f"{message}; lower --max-tokens, or serve the model with a longer context")
    raise RejectedError(message)


def seconds_until(retry_after: str | None) -> float | None:
    """The pause that a ``Retry-After`` header asks for, in seconds or as a date (RFC 9110, 10.2.3); None: none."""
    if retry_after is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", retry_after.strip()):
        return float(retry_after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _completion(content: bytes, params: SamplingParams) -> Completion:
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        text, reasoning = message.get("content") or "", message.get("reasoning_content") or message.get("reasoning")
        if not isinstance(text, str):
            raise TypeError(f"content is a {type(text).__name__}")
        usage = answer.get("usage") or {}
        prompt_tokens, completion_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
        tool_calls = tuple(message.get("tool_calls") or ())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TransientError(
            f"the answer is no completion ({type(error).__name__}: {error}): {content[:SAID]!r}", kind="malformed"
        ) from error
    finish = choice.get("finish_reason")
    if finish in UNFINISHED:
        raise TransientError(f"the server gave up in the middle of an answer (finish_reason {finish})", kind="broken")
    if finish is None:
        finish = "length" if (completion_tokens or 0) >= params.max_tokens else "unknown"
    if reasoning:
        text = f"<think>\n{reasoning}\n</think>\n{text}"
    return Completion(text, str(finish), prompt_tokens, _without_end_token(completion_tokens, choice), tool_calls)


def _without_end_token(completion_tokens: int | None, choice: Mapping[str, Any]) -> int | None:
    """Less the end token where the server says that it counted one.

    vLLM's server counts every token that it sampled, and adds ``stop_reason`` to each choice: null where an end token
    ended the answer, a number for another stop token, a text for one of the request's ``stop`` strings, which has no
    token of its own. Servers without that key do not tell, and their count is left as it is.
    """
    ended = choice.get("finish_reason") in ENDED and "stop_reason" in choice
    if not ended or isinstance(choice["stop_reason"], str) or not completion_tokens:
        return completion_tokens
    return completion_tokens - 1
