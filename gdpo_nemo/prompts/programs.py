"""The prompt of the world of small programming tasks."""

from __future__ import annotations

from gdpo_nemo.data import program_world
from gdpo_nemo.data.program_world import K, ProgramWorld
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.types import Message, Prompt, Row


def build_prompt(row: Row) -> Prompt:
    """The chat messages of a row with the fields ``number`` and ``words``."""
    text = template("programs").format(number=row.fields["number"], words=row.fields["words"])
    return Prompt(row.id, (Message("user", text),))


def phrases(world: ProgramWorld) -> list[str]:
    """Every phrase of the world's prompts and programs, one token each; a number is a token of its own."""
    opening, rest = template("programs").split("{number}")
    between, ending = rest.split("{words}")
    guard, tail = program_world.GUARD, ")\n"
    reports = [step.code.replace("".join(guard), "") for step in program_world.REDUCTIONS]
    return [
        f"<|user|>\n{opening}",
        f"{between}keep ",
        f"{ending}\n<|assistant|>\n",
        *(f", {step.words}" for step in program_world.OPERATIONS),
        *(step.words for step in program_world.FILTERS),
        *(f", {step.words}" for step in program_world.MAPS if step.words),
        *(f", print {step.words}" for step in program_world.REDUCTIONS),
        *program_world.DIGITS,
        program_world.OPEN,
        *(f"{program_world.ASSIGN}", "k", "\n"),
        *(f"{step.code}\n" for step in program_world.OPERATIONS),
        f"{program_world.READ}\n",
        *(part for step in program_world.FILTERS for part in f"{step.code}\n".split(K)),
        *(f"{step.code}\n" for step in program_world.MAPS if step.code),
        *(report.removesuffix(")") for report in reports),
        *(*guard, tail),
        *(f"{comment}\n" for comment in program_world.COMMENTS),
        program_world.CLOSE,
    ]
