"""The prompt of the world of word problems: the instruction of the GSM8K runs, then the problem."""

from __future__ import annotations

from gdpo_nemo.data import word_problem_world
from gdpo_nemo.data.word_problem_world import WordProblemWorld
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.types import Message, Prompt, Row


def build_prompt(row: Row) -> Prompt:
    """The chat messages of a row with fields ``name``, ``start``, ``things`` and ``events``."""
    fields = row.fields
    told = " ".join(fields["events"])
    problem = f"{fields['name']} has {fields['start']} {fields['things']}. {told} {_question(fields['things'])}"
    return Prompt(row.id, (Message("system", template("gsm8k")), Message("user", problem)))


def phrases(world: WordProblemWorld) -> list[str]:
    """Every phrase of the world's prompts and answers, one token each; a number is a token of its own."""
    events = word_problem_world.EVENTS
    return [
        f"<|system|>\n{template('gsm8k')}\n<|user|>\n",
        *(f"{name} has " for name in word_problem_world.NAMES),
        *(str(number) for number in range(1, world.largest + 1)),
        *(f" {things}. " for things in word_problem_world.THINGS),
        *(f"{event.words} " for event in events),
        *(f"{_question(things)}\n<|assistant|>\n" for things in word_problem_world.THINGS),
        *(f" {event.calculation} = " for event in events),
        ", ",
        *(f" {things}" for things in word_problem_world.THINGS),
        *(".0", "<think>", "</think>", word_problem_world.NEWLINE, "<answer>", "</answer>"),
    ]


def _question(things: str) -> str:
    return f"How many {things} are there now?"
