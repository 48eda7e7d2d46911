"""What an experiment is: arms, seeds per scale, and what its report shows and judges. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.report.spec import Claim, Column, Deviation, Exhibit

EMBEDDED: Literal["embedded"] = "embedded"
# A run of every stage in seconds, for tests and for a first look at an installation. The numbers it gives mean nothing.
SMOKE_OVERRIDES = {
    "embedded": (
        "embedded.warmup.clean_steps=30",
        "embedded.warmup.noisy_steps=5",
        "embedded.warmup.batch_size=16",
        "embedded.warmup.pool_rows=64",
        "embedded.train.steps=6",
        "embedded.train.prompts_per_step=4",
        "embedded.train.rollouts_per_prompt=4",
        "embedded.train.checkpoint_every=2",
        "embedded.evaluation.questions=24",
    ),
}


@dataclass(frozen=True)
class Arm:
    """One method under comparison, configured by ``configs/<experiment>/<name>.yaml``.

    Attributes:
        name: as in the name of the file and of the run directories.
        label: as in tables and legends.
        default: whether it runs without being asked for by name or by ``--arms all``.
        scale: the one scale that it exists at; None: all of them.
    """

    name: str
    label: str
    default: bool = True
    scale: str | None = None


@dataclass(frozen=True)
class Experiment:
    """One task: which arms run with which seeds, and what the report shows.

    Attributes:
        name: as in ``configs/<name>/``, ``repro/<name>.py`` and the run directories.
        title: one line.
        arms: in the order of the table.
        seeds: scale -> seeds. The scales that are declared here are those that exist.
        columns, claims, curves, tradeoff: of the table at embedded scale, see ``gdpo_nemo.report.spec.ReportSpec``.
        deviations: of both scales, or of the one that each names.
        exhibits: the paper's tables and figures that it covers, see ``gdpo_nemo.report.paper``.
        reference: the paper's table whose effects stand beside the claims at embedded scale.
        evaluations: program of ``eval/`` -> the benchmarks that it leaves results of, at the paper's scale.
    """

    name: str
    title: str
    arms: Sequence[Arm]
    seeds: Mapping[str, Sequence[int]]
    columns: Sequence[Column]
    claims: Sequence[Claim] = ()
    deviations: Sequence[Deviation] = ()
    curves: Sequence[str] = ()
    tradeoff: tuple[str, ...] = ()
    exhibits: Sequence[Exhibit] = ()
    reference: str | None = None
    evaluations: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check(self.name, self.columns, self.claims)
        for exhibit in self.exhibits:
            self._check(exhibit.name, exhibit.columns, exhibit.claims)
            for arm in exhibit.arms:
                self.arm(arm)

    @property
    def sweep(self) -> tuple[str, ...]:
        """The arms beyond the default ones, which ``--sweep`` adds."""
        return tuple(arm.name for arm in self.arms if not arm.default)

    def _check(self, where: str, columns: Sequence[Column], claims: Sequence[Claim]) -> None:
        names = [column.name for column in columns]
        for claim in claims:
            for arm in (claim.left, claim.right):
                self.arm(arm)
            if claim.on not in names:
                raise UnknownNameError(f"column of {where}", claim.on, names)

    def all_exhibits(self) -> tuple[Exhibit, ...]:
        """The table at embedded scale, if there is that scale, and the paper's tables and figures."""
        own = Exhibit(
            EMBEDDED,
            self.title,
            "table",
            EMBEDDED,
            arms=tuple(arm.name for arm in self.arms),
            columns=tuple(self.columns),
            rewards=tuple(self.curves),
            claims=tuple(self.claims),
            reference=self.reference,
            needs="this machine, minutes",
        )
        return (*([own] if EMBEDDED in self.seeds else []), *self.exhibits)

    def exhibit(self, name: str) -> Exhibit:
        """The exhibit of that name.

        Raises:
            UnknownNameError: there is none.
        """
        found = {exhibit.name: exhibit for exhibit in self.all_exhibits()}
        if name not in found:
            raise UnknownNameError(f"exhibit of {self.name}", name, found)
        return found[name]

    def deviations_at(self, scale: str) -> tuple[Deviation, ...]:
        """The deviations that hold at a scale."""
        return tuple(one for one in self.deviations if one.scale in (None, scale))

    def arm(self, name: str) -> Arm:
        """The arm of that name.

        Raises:
            UnknownNameError: there is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise UnknownNameError(f"arm of {self.name}", name, [arm.name for arm in self.arms])

    def pick_arms(self, names: Sequence[str] | None, scale: str | None = None) -> tuple[str, ...]:
        """Names of the default arms (None), of all (``["all"]``) or of the given ones, in the order of the table.

        Given names are taken as they are; only what is not named is left out where it does not exist at a scale.

        Raises:
            UnknownNameError: a name that no arm has.
        """
        there = [arm for arm in self.arms if scale is None or arm.scale in (None, scale)]
        if names is None:
            return tuple(arm.name for arm in there if arm.default)
        if list(names) == ["all"]:
            return tuple(arm.name for arm in there)
        wanted = {self.arm(name).name for name in names}
        return tuple(arm.name for arm in self.arms if arm.name in wanted)

    def default_seeds(self, scale: str) -> tuple[int, ...]:
        """The seeds declared for a scale.

        Raises:
            UnknownNameError: the experiment does not declare that scale.
        """
        if scale not in self.seeds:
            raise UnknownNameError(f"scale of {self.name}", scale, self.seeds)
        return tuple(self.seeds[scale])
