"""A reward served over HTTP: a judge or a reward model behind an OpenAI-compatible endpoint.

One POST per sample, ``{url}{path}`` with ``{"model", "messages", **options}``. The text under ``reply`` in the
answer (a dotted path) is searched for ``score``; the last match counts. By default that is a line with nothing
but a number: "8/10" is no score. A judge reads the prompt you write; a reward model reads the conversation:

    prompt: {user: "Rate from 0 to 10. Last line: only the number. {response}"}   # a judge
    prompt: {user: "{question}", assistant: "{response}"}      # a reward model of vLLM
    path: /pooling
    reply: data.0.data.0

Busy servers (408, 429, 5xx) and broken connections are tried again, twice as late each time, within the reward's
time-out. A refused key, a wrong address and a redirect stop the run: no sample can cause them. A reply without
a score, or with one outside the reward's range, leaves its sample not graded, as any other status does.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.templates import as_text, fill, placeholders
from gdpo_nemo.types import Rollout, Row

NUMBER_LINE = r"(?m)^\s*(-?\d+(?:\.\d+)?)\s*$"
BUSY = {408, 429, 500, 502, 503, 504, 529}
WRONG = {301, 302, 303, 307, 308, 401, 403, 404, 405}


def check_address(url: str) -> None:
    """Do nothing for the base address of an endpoint.

    Raises:
        InputError: it is none, or it holds a password, which would end in files.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"url is {url!r}; expected http://host:port/v1 or https://...")
    if parts.username or parts.password:
        raise InputError("url holds a name or a password; put the key into the environment and name it: api_key_env")


class UnusableReplyError(ValueError):
    """The endpoint answered, and the answer holds no score for this sample."""


@dataclass(frozen=True)
class Judge:
    """Where to ask, what, and how to read the answer.

    Attributes:
        url: base address, e.g. ``http://localhost:8000/v1``.
        model: the model's name there.
        prompt: role -> template, in the order of the conversation. Templates know the row's fields, ``gold`` and
            ``response``.
        path: what is posted to, after the base address.
        reply: dotted path of the text or number in the answer; numbers count into lists, from the end when negative.
        score: regular expression with one group, the number; the last match counts. Not used where ``reply`` is one.
        options: more keys of the request, e.g. ``max_tokens``.
        api_key_env: name of the environment variable that holds the key, sent as a bearer token.
        retries: further attempts at a busy server.
        backoff_s: pause before the first of them.
    """

    url: str
    model: str
    prompt: dict[str, str]
    path: str = "/chat/completions"
    reply: str = "choices.0.message.content"
    score: str = NUMBER_LINE
    options: dict[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    api_key_env: str | None = None
    retries: int = 3
    backoff_s: float = 0.5

    def __post_init__(self) -> None:
        check_address(self.url)
        try:
            groups = re.compile(self.score).groups
        except re.error as error:
            raise InputError(f"score {self.score!r} is no regular expression: {error}") from error
        if groups != 1:
            raise InputError(f"score {self.score!r} has {groups} groups; expected one, around the number")
        if not any("response" in placeholders(template) for template in self.prompt.values()):
            raise InputError("prompt shows the judge no {response}; write it into one of the templates")

    def scorer(self, bounds: tuple[float, float], timeout_s: float) -> Callable[[Row, Rollout], float]:
        """The reward function: scores outside ``bounds`` are unusable, all attempts together take ``timeout_s``.

        Raises:
            PrerequisiteError: the environment has no key under ``api_key_env``.
        """
        headers = {"Content-Type": "application/json", "User-Agent": "gdpo-nemo"}
        if self.api_key_env is not None:
            if not os.environ.get(self.api_key_env):
                raise PrerequisiteError(f"the environment variable {self.api_key_env} (api_key_env) is not set")
            headers["Authorization"] = f"Bearer {os.environ[self.api_key_env]}"

        def judge(row: Row, rollout: Rollout) -> float:
            values = {**row.fields, "gold": row.gold, "response": rollout.response}
            messages = [{"role": role, "content": fill(text, values)} for role, text in self.prompt.items()]
            body = {"model": self.model, "messages": messages, **self.options}
            answer = self._ask(json.dumps(body).encode(), headers, time.monotonic() + timeout_s)
            return self._read(answer, bounds)

        return judge

    def _ask(self, body: bytes, headers: Mapping[str, str], deadline: float) -> bytes:
        address = self.url.rstrip("/") + self.path
        request = urllib.request.Request(address, body, dict(headers), method="POST")
        opener = urllib.request.build_opener(_NoRedirect)
        for attempt in range(self.retries + 1):
            try:
                with opener.open(request, timeout=max(0.01, deadline - time.monotonic())) as response:
                    content: bytes = response.read()
                    return content
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read(300).decode("utf-8", "replace")
                if error.code in WRONG:
                    raise PrerequisiteError(
                        f"{address} answers {error.code} {error.reason}: {said}; look at url, path, model, api_key_env"
                    ) from None
                failure: Exception = UnusableReplyError(f"{address} answers {error.code} {error.reason}: {said}")
                if error.code not in BUSY:
                    raise failure from None
            except (OSError, http.client.HTTPException) as error:
                failure = error
            pause = self.backoff_s * 2**attempt
            if attempt == self.retries or time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        raise failure

    def _read(self, answer: bytes, bounds: tuple[float, float]) -> float:
        try:
            value: Any = json.loads(answer)
            for part in self.reply.split("."):
                value = value[part] if isinstance(value, dict) else value[int(part)]
        except (ValueError, LookupError, TypeError) as error:
            raise UnusableReplyError(f"no {self.reply} in the answer {answer[:300]!r}") from error
        try:
            is_number = isinstance(value, int | float)
            score = float(value if is_number else re.findall(self.score, as_text(value))[-1])
        except (IndexError, ValueError) as error:
            raise UnusableReplyError(f"no score in the reply {as_text(value)[:300]!r}") from error
        if not bounds[0] <= score <= bounds[1]:
            raise UnusableReplyError(f"score {score:g} in the reply is outside [{bounds[0]:g}, {bounds[1]:g}]")
        return score


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None
