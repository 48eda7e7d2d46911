"""The prompt of the arithmetic world, with DeepScaleR's instruction on how to answer."""

from __future__ import annotations

from gdpo_nemo.data.residue_world import ResidueWorld
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.types import Message, Prompt, Row


def build_prompt(row: Row) -> Prompt:
    """The chat messages of a row with fields ``start``, ``operations`` and ``modulus``."""
    fields = row.fields
    text = template("residues").format(
        start=fields["start"], operations=", ".join(fields["operations"]), modulus=fields["modulus"]
    )
    return Prompt(row.id, (Message("user", text),))


def phrases(world: ResidueWorld) -> list[str]:
    """Every phrase of the world's prompts and answers, one token each."""
    opening, rest = template("residues").split("{start}")
    then, ending = rest.split("{operations}")
    numbers = [str(number) for number in range(world.modulus)]
    return [
        f"<|user|>\n{opening}",
        then,
        f"{ending.format(modulus=world.modulus)}\n<|assistant|>\n",
        *numbers,
        *world.operations,
        *(f"{operation}: " for operation in world.operations),
        *(", ", " ", "\\boxed{", "}"),
    ]
