"""The paper's numbers as data: ``repro/references/tables.json``, read strictly.

A number that is not known is null or absent, and a table is never filled in from elsewhere without saying so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from gdpo_nemo.errors import ConfigError, UnknownNameError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReferenceCell(_Strict):
    """One number of the paper.

    Attributes:
        value: in the unit of the table.
        decimals: as printed, which is how far it was rounded; None: as in the rest of its table.
        source: ``paper``, or ``secondary`` where the paper's own print was not at hand.
    """

    value: FiniteFloat
    decimals: int | None = Field(default=None, ge=0, le=6)
    source: Literal["paper", "secondary"] = "paper"


class ReferenceModel(_Strict):
    """One model's rows: its name in the paper, and arm -> column -> number."""

    label: str
    cells: dict[str, dict[str, FiniteFloat | ReferenceCell | None]]


class Bound(_Strict):
    """All that the text says of an unknown cell: it lies within ``shift`` (same unit) of another arm's."""

    arm: str
    from_: str = Field(alias="from")
    column: str
    shift: float = Field(ge=0)


class ReferenceTable(_Strict):
    """One table of the paper.

    Attributes:
        title: as in captions.
        unit: of every number.
        decimals: as printed.
        runs: training runs that a number of a trained arm is the mean of.
        runs_source: where that is from.
        samples_per_question: of its evaluation; None where the paper does not say.
        note: what a reader of the numbers must know.
        columns: names.
        models: model, as in the names of run directories -> its rows.
        bounds: see ``Bound``.
    """

    title: str
    unit: Literal["percent"]
    decimals: int = Field(ge=0, le=6)
    runs: int = Field(ge=1)
    runs_source: str
    samples_per_question: int | None = Field(default=None, ge=1)
    note: str = ""
    columns: tuple[str, ...]
    models: dict[str, ReferenceModel]
    bounds: tuple[Bound, ...] = ()

    def model_post_init(self, _: object) -> None:
        """Refuse a cell of a column that the table does not have."""
        named = [column for model in self.models.values() for row in model.cells.values() for column in row]
        for column in [*named, *(bound.column for bound in self.bounds)]:
            if column not in self.columns:
                raise UnknownNameError(f"column of {self.title!r}", column, self.columns)

    def cell(self, model: str, arm: str, column: str | None) -> ReferenceCell | None:
        """A number with its precision, None where it is not known.

        Raises:
            UnknownNameError: the table has no such column.
        """
        if column is None:
            return None
        if column not in self.columns:
            raise UnknownNameError(f"column of {self.title!r}", column, self.columns)
        rows = self.models[model].cells if model in self.models else {}
        found = rows.get(arm, {}).get(column)
        if found is None:
            return None
        cell = found if isinstance(found, ReferenceCell) else ReferenceCell(value=found)
        return cell.model_copy(update={"decimals": self.decimals}) if cell.decimals is None else cell

    def effects(self, left: str, right: str, column: str | None) -> dict[str, float]:
        """The model's name in the paper -> left minus right, for every model with both numbers."""
        found = {}
        for name, model in self.models.items():
            sides = [self.cell(name, arm, column) for arm in (left, right)]
            if sides[0] and sides[1]:
                found[model.label] = round(sides[0].value - sides[1].value, 6)
        return found


class _File(_Strict):
    schema_: Literal[1] = Field(alias="schema")
    source: str
    tables: dict[str, ReferenceTable]


@dataclass(frozen=True)
class References:
    """Every table of the file, and where the numbers are from."""

    source: str
    tables: dict[str, ReferenceTable]

    def table(self, name: str | None) -> ReferenceTable | None:
        """The table of that name; None for None.

        Raises:
            UnknownNameError: the file has none.
        """
        if name is None:
            return None
        if name not in self.tables:
            raise UnknownNameError("reference table", name, self.tables)
        return self.tables[name]


def load_references(path: Path) -> References:
    """Read the file.

    Raises:
        ConfigError: it is absent or not what it should be; the message names the place in it.
    """
    try:
        content = _File.model_validate_json(path.read_text("utf-8"), strict=True)
    except FileNotFoundError as error:
        raise ConfigError(
            f"no reference numbers at {path}; they come with the package, in repro/references/"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{path}: {where}: {first['msg']} ({error.error_count()} in all)") from error
    except UnknownNameError as error:
        raise ConfigError(f"{path}: {error}") from error
    return References(content.source, content.tables)
