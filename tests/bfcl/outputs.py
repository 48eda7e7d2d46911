"""What models say: right answers made from the references, near misses and broken calls, for every entry of BFCL.

An output is a list of calls per step, or text; ``toolrl`` and ``native`` write it down in one form each.
"""

import ast
import json

UNKNOWN = {"name": "no_such_tool", "arguments": {"x": 1}}
HOSTILE = {"name": "__import__('os').getpid", "arguments": {}}
CHAT = "I cannot do that."


class Broken(dict):
    """A call whose text is cut off."""


def gold_calls(reference):
    """Calls that use the first allowed value of each parameter, without those that may be left out."""
    return [
        {"name": name, "arguments": _first_of_each(parameters)}
        for call in reference
        for name, parameters in call.items()
    ]


def _first_of_each(parameters):
    allowed = {key: [option for option in options if option != ""] for key, options in parameters.items()}
    return {key: _concrete(options[0]) for key, options in allowed.items() if options}


def _concrete(value):
    if isinstance(value, dict):
        return _first_of_each({key: option if isinstance(option, list) else [option] for key, option in value.items()})
    if isinstance(value, list):
        return [_concrete(item) for item in value]
    return value


def gold_steps(lines, tools):
    """Calls of a turn's reference, written as Python; positions are named after the tool's parameters."""
    names = {tool["name"]: list(tool["parameters"]["properties"]) for tool in tools}
    calls = []
    for line in lines:
        call = ast.parse(line, mode="eval").body
        name = call.func.id
        arguments = dict(zip(names[name], map(ast.literal_eval, call.args), strict=False))
        arguments |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        calls.append({"name": name, "arguments": arguments})
    return calls


def changed(call):
    """The call with another value, or another parameter."""
    arguments = dict(call["arguments"])
    for key, value in arguments.items():
        arguments[key] = not value if isinstance(value, bool) else f"{value}x" if isinstance(value, str) else None
        return {"name": call["name"], "arguments": arguments}
    return {"name": call["name"], "arguments": {"surplus": 1}}


def single_turn(entry, number):
    """One step for one entry; the numbers go round the ways to be right and wrong."""
    calls = gold_calls(entry["gold"]) if entry["gold"] else []
    some = calls or [{"name": entry["tools"][0]["name"] if entry["tools"] else "f", "arguments": {}}]
    ways = [
        lambda: calls or CHAT,
        lambda: [*some[:-1], changed(some[-1])],
        lambda: [Broken(some[0])],
        lambda: [*some, some[0]],
        lambda: CHAT,
        lambda: some[::-1],
        lambda: [*some, Broken(some[0])],
        lambda: [{"name": "None", "arguments": {}}],
        lambda: "",
        lambda: [{"name": some[0]["name"], "arguments": [1, 2]}],
    ]
    return ways[number % len(ways)]()


def dialogue(entry, number):
    """Turns of steps for one entry of several turns."""
    tools = [*entry["tools"], *(tool for new in entry["held_out"].values() for tool in new)]
    gold = [gold_steps(lines, tools) for lines in entry["gold"]]
    full = max(range(len(gold)), key=lambda turn: len(gold[turn]))
    together = [[*([calls] if calls else []), CHAT] for calls in gold]

    def with_turn(calls):
        return [*together[:full], [calls, CHAT], *together[full + 1 :]]

    ways = [
        lambda: together,
        lambda: [[*([call] for call in calls), CHAT] for calls in gold],
        lambda: with_turn(gold[full][:-1] or CHAT),
        lambda: with_turn([*gold[full][:-1], changed(gold[full][-1])]),
        lambda: with_turn([UNKNOWN, *gold[full], HOSTILE]),
        lambda: with_turn(gold[full] * 2),
        lambda: together[:-1],
        lambda: [[CHAT] for _ in gold],
        lambda: with_turn([Broken(gold[full][0]), *gold[full][1:]]),
        lambda: [[*turn[:-1], [UNKNOWN], CHAT] for turn in together],
    ]
    return ways[number % len(ways)]()


def toolrl(step):
    """A step in ToolRL's format."""
    if isinstance(step, str):
        return f"<think> t </think>\n<response> {step} </response>" if step else ""
    lines = [_cut(json.dumps({"name": call["name"], "parameters": call["arguments"]}), call) for call in step]
    return "<think> t </think>\n<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


def native(step):
    """A step as tool calls of the OpenAI interface, dots in names as underscores; text stays text."""
    if isinstance(step, str):
        return step
    return [{call["name"].replace(".", "_"): _cut(json.dumps(call["arguments"]), call)} for call in step]


def _cut(text, call):
    return text[:-1] if isinstance(call, Broken) else text
