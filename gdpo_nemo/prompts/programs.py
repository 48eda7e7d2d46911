"""The prompt of the world of small programming tasks."""

from __future__ import annotations

from gdpo_nemo.data import program_world
from gdpo_nemo.data.program_world import K, ProgramWorld
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.types import Message, Prompt, Row


def build_prompt(row: Row) -> Prompt:
    """The chat messages of a row with the field ``words``."""
    return Prompt(row.id, (Message("user", template("programs").format(words=row.fields["words"])),))


def phrases(world: ProgramWorld) -> list[str]:
    """Every phrase of the world's prompts and programs, one token each; a number is a token of its own."""
    opening, ending = template("programs").split("{words}")
    words = [step.words for steps in (program_world.FILTERS, program_world.MAPS) for step in steps]
    code = [step.code for steps in (program_world.FILTERS, program_world.MAPS) for step in steps]
    reports = [step.code for step in program_world.REDUCTIONS]
    guard, tail = program_world.GUARD, ")\n"
    return [
        f"<|user|>\n{opening}keep ",
        f"{ending}\n<|assistant|>\n",
        *(part for text in words for part in text.split(K) if part),
        ", ",
        ", print ",
        *(step.words for step in program_world.REDUCTIONS),
        *program_world.DIGITS,
        program_world.OPEN,
        f"{program_world.READ}\n",
        *(part for text in code if text for part in f"{text}\n".split(K)),
        *(report.replace(guard, "").removesuffix(")") for report in reports),
        *(guard, tail),
        *(f"{comment}\n" for comment in program_world.COMMENTS),
        program_world.CLOSE,
    ]
