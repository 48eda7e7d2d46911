"""Conversations with tools as text, by templates of three kinds, and a model of this process that is asked so."""

import asyncio
import json
import re

import pytest
from scripted_server import Reply, ScriptedServer
from test_export import byte_tokenizer

from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.evaluation.bfcl.conversation import NativeStyle, single_turn
from gdpo_nemo.evaluation.bfcl.decoding import native_steps
from gdpo_nemo.evaluation.samplers.chat_template import ChatTemplate
from gdpo_nemo.evaluation.samplers.endpoint import Endpoint
from gdpo_nemo.evaluation.sampling import RejectedError, SamplingParams

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CALLS = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}\n{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or () %}CALL{% endfor %}{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
HERMES = CALLS.replace(
    "CALL",
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>',
)
LLAMA = CALLS.replace("CALL", '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}')
STRICT = CALLS.replace("CALL", "{{ raise_exception('no calls here') }}")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "1 + 1?"}


def template(text):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = text
    return ChatTemplate(tokenizer, "a model")


def test_tools_are_offered_and_a_dialogue_is_written_as_the_model_writes_calls():
    said = '<tool_call>\n{"name": "add", "arguments": {"a": [1], "b": "é"}}\n</tool_call>'
    calls = native_steps(said)
    dialogue = [USER, *NativeStyle().answered(said, calls, ["2"], 1)]
    assert isinstance(dialogue[1]["tool_calls"][0]["function"]["arguments"], str)
    text = template(HERMES).prompt(dialogue, [TOOL])
    offered, _, rest = text.partition("</tools>\n")
    assert json.loads(offered.removeprefix("<tools>")) == TOOL
    assert rest.startswith("<user>1 + 1?\n<assistant><tool_call>") and rest.endswith("<tool>2\n<assistant>")
    assert native_steps(rest) == calls


def test_without_tools_every_template_will_do():
    assert {template(text).prompt([USER]) for text in (PLAIN, HERMES, LLAMA)} == {"<user>1 + 1?\n<assistant>"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAIN, r"has no place for tools.*--prompt toolrl"),
        (
            LLAMA,
            r"does not write calls as JSON between <tool_call> tags.*--tool-call-parser NAME\) and give --endpoint",
        ),
        (STRICT, r"no calls here.*--tool-call-parser NAME"),
    ],
    ids=["plain", "llama", "strict"],
)
def test_a_template_whose_calls_cannot_be_read_is_refused(text, words):
    with pytest.raises(PrerequisiteError, match=re.compile(words, re.DOTALL)):
        template(text).prompt([USER], [TOOL])


def test_a_conversation_that_the_template_refuses_is_a_failure_of_its_own():
    picky = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + HERMES
    made = template(picky)
    assert "add" in made.prompt([USER], [TOOL])
    with pytest.raises(RejectedError, match="no system"):
        made.prompt([{"role": "system", "content": "s"}, USER], [TOOL])


def test_an_endpoint_for_completions_gets_the_tools_in_the_prompt(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    answer = {"choices": [{"text": "done", "finish_reason": "stop"}]}
    server = ScriptedServer(lambda body, nth: Reply(body=json.dumps(answer).encode()))
    sampler = Endpoint(server.url, "m", template=template(HERMES))

    async def ask():
        answer = await sampler.complete([USER], SamplingParams(extra={"tools": [TOOL]}))
        await sampler.close()
        return answer.text

    assert asyncio.run(ask()) == "done"
    server.stop()
    ((path, _, body),) = server.asked
    assert path == "/v1/completions"
    assert "<tools>" in body["prompt"] and "tools" not in body


@pytest.fixture
def sampler(tmp_path, one_thread):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from gdpo_nemo.evaluation.samplers.transformers import Transformers

    tokenizer = byte_tokenizer()
    tokenizer.chat_template = HERMES
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **sizes))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return Transformers(str(tmp_path), device="cpu")


def test_a_model_in_this_process_is_asked_with_tools(sampler):
    entry = {"tools": [TOOL], "turns": [[USER]]}

    async def ask(messages, **changes):
        return await sampler.complete(messages, SamplingParams(0.0, 1.0, 4, **changes))

    answer = asyncio.run(single_turn(entry, ask, NativeStyle()))
    assert answer["response"]
    plain, offered = (asyncio.run(ask([USER], **changes)) for changes in ({}, {"extra": {"tools": [TOOL]}}))
    assert offered.prompt_tokens > plain.prompt_tokens + 20
    with pytest.raises(InputError, match="further keys"):
        asyncio.run(ask([USER], extra={"tools": [TOOL], "top_k": 1}))
