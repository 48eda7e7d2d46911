"""The procedural worlds of the embedded experiments: what each asks, shows in the warm-up, and is written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Discriminator, Tag

from gdpo_nemo.data import demonstrations, program_world, residue_world, word_problem_world
from gdpo_nemo.data.program_world import ProgramWorld
from gdpo_nemo.data.residue_world import ResidueWorld
from gdpo_nemo.data.tool_world import ToolWorld
from gdpo_nemo.data.word_problem_world import WordProblemWorld
from gdpo_nemo.prompts import programs, residues, tool_calling, word_problems
from gdpo_nemo.types import Prompt, Row
from gdpo_nemo.validation import TAG

World = ToolWorld | ResidueWorld | ProgramWorld | WordProblemWorld


def _tag(value: Any) -> str:
    kind = value.get("kind", "trips") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"{TAG}{kind}"


AnyWorld = Annotated[
    Annotated[ToolWorld, Tag(f"{TAG}trips")]
    | Annotated[ResidueWorld, Tag(f"{TAG}residues")]
    | Annotated[ProgramWorld, Tag(f"{TAG}programs")]
    | Annotated[WordProblemWorld, Tag(f"{TAG}word_problems")],
    Discriminator(
        _tag,
        custom_error_type="kind",
        custom_error_message="no world of that kind; known: trips, residues, programs, word_problems",
    ),
]
"""A field of a configuration: the mapping's ``kind`` says which world, trips when it says nothing."""


@dataclass(frozen=True)
class Task:
    """What the rest of the package asks of a world.

    Attributes:
        prompt: what the model is asked.
        demonstrate: one completion of the warm-up, of a mix of behaviour.
        clean: the mix of the warm-up's clean phase; the world's own comes after it.
        phrases: every phrase of prompts and completions; each is one token of the tiny model.
    """

    prompt: Callable[[Row], Prompt]
    demonstrate: Callable[[Any, Row, Any, np.random.Generator], str]
    clean: Any
    phrases: Callable[[Any], list[str]]


TASKS = {
    "trips": Task(tool_calling.build_prompt, demonstrations.demonstrate, demonstrations.CLEAN, tool_calling.phrases),
    "residues": Task(residues.build_prompt, residue_world.demonstrate, residue_world.CLEAN, residues.phrases),
    "programs": Task(
        programs.build_prompt,
        lambda world, row, mix, rng: program_world.demonstrate(row, mix, rng),
        program_world.CLEAN,
        programs.phrases,
    ),
    "word_problems": Task(
        word_problems.build_prompt, word_problem_world.demonstrate, word_problem_world.CLEAN, word_problems.phrases
    ),
}


OF_TASK: dict[str, World] = {
    "tool_calling": ToolWorld(),
    "math_length": ResidueWorld(),
    "code_reasoning": ProgramWorld(),
    "gsm8k": WordProblemWorld(),
}


def world_of(task: str | None) -> World:
    """The world whose rows the rewards of a task read; the tool world where the task is one's own."""
    return OF_TASK.get(task or "", ToolWorld())


def build_prompt(world: World, row: Row) -> Prompt:
    """What the model is asked."""
    return TASKS[world.kind].prompt(row)


def demonstrate(world: World, row: Row, rng: np.random.Generator, *, clean: bool) -> str:
    """One completion of the warm-up: of its clean phase, or of the mix that leaves the model where RL starts."""
    task = TASKS[world.kind]
    return task.demonstrate(world, row, task.clean if clean else world.mix, rng)


def phrases(world: World) -> list[str]:
    """Every phrase of the world's prompts and completions."""
    return TASKS[world.kind].phrases(world)
