"""A reward in place of its value: its place among the values of recent prompts.

    Q(v) = (#{u < v - d} + #{u <= v + d}) / (2 n)         d = 1e-6 |v|

over the n values u that the last ``window`` prompts with this reward had, those of the batch at hand among them; every
``refresh`` batches the values that Q counts are brought up to date. Q is the mid-rank distribution function (Bross's
ridit, Biometrics 14(1), 1958): in [0, 1], 1/2 on average over the window, the same after any rising map of the reward.

What it changes: a reward's scale and the shape of its distribution decide nothing any more, its order does. One value
far outside takes no digits from the others of its group, which a standard deviation lets it do; GRPO's sum is over
rewards of like spread. A reward with two values keeps two, at a distance of 1/2 whatever the share of each.

- Values within d of each other count as one, as in ``gdpo_nemo.advantages.groups``: rounding must not become a rank.
- Rows that ``valid_B`` masks and missing values (NaN) enter no window; NaN stays NaN.
- With ``refresh`` 1 and a window of at least a batch's prompts, two values of a batch that differ stay apart. Between
  refreshes values that fall between the same two counted ones do not, nor do those above or below all of them.
- Prompts of a batch enter in the order of their labels; where a batch has more of them than the window, the last stay.

The window is a part of the run: ``save`` and ``restore`` keep it bit for bit. RDPO (arXiv 2605.13641) maps by quantiles
as well and whitens the rewards afterwards; no whitening here, which would undo the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdpo_nemo.errors import InputError, RunDirError

if TYPE_CHECKING:
    from torch import Tensor

FILE = "quantiles.pt"
SAME = 1e-6
"""Values whose difference is at most this share of their magnitude are one."""


@dataclass(frozen=True)
class Quantile:
    """How the windows of all rewards move.

    Attributes:
        window: prompts that a reward's values are kept of.
        refresh: batches between two updates of what is counted; 1: every batch.

    Raises:
        InputError: one of them is below 1.
    """

    window: int = 256
    refresh: int = 1

    def __post_init__(self) -> None:
        if self.window < 1 or self.refresh < 1:
            raise InputError(
                f"quantile has window {self.window} and refresh {self.refresh}; expected at least 1 prompt and 1 batch"
            )


@dataclass(frozen=True)
class Window:
    """The recent values of one reward.

    Attributes:
        values_N: float64.
        prompts_N: int64, the number of the prompt that each came from, counted over the run.
        num_prompts: seen so far.
        counted_n: float64, the values that Q counts, sorted.
    """

    values_N: Tensor
    prompts_N: Tensor
    num_prompts: int
    counted_n: Tensor

    @classmethod
    def empty(cls) -> Window:
        """Before the first batch."""
        import torch

        nothing = torch.empty(0, dtype=torch.float64)
        return cls(nothing, torch.empty(0, dtype=torch.int64), 0, nothing)

    def after(self, values_B: Tensor, group_ids_B: Tensor, size: int, refresh: bool) -> Window:
        """With the values of a batch (those that count, on the CPU), and no more than ``size`` prompts."""
        import torch

        groups, group_of_row_B = group_ids_B.unique(return_inverse=True)
        num_prompts = self.num_prompts + len(groups)
        prompts_N = torch.cat([self.prompts_N, self.num_prompts + group_of_row_B])
        recent_N = prompts_N >= num_prompts - size
        values_N = torch.cat([self.values_N, values_B])[recent_N]
        stale = not refresh and len(self.counted_n)
        return Window(values_N, prompts_N[recent_N], num_prompts, self.counted_n if stale else values_N.sort().values)

    def place(self, values_B: Tensor) -> Tensor:
        """Q of each value; NaN of NaN."""
        import torch

        width_B = SAME * values_B.abs()
        below_B = torch.searchsorted(self.counted_n, values_B - width_B)
        up_to_B = torch.searchsorted(self.counted_n, values_B + width_B, right=True)
        places_B = (below_B + up_to_B).double() / (2 * max(len(self.counted_n), 1))
        return places_B.where(~values_B.isnan(), values_B)


class Quantiles:
    """The windows of the rewards that are mapped, and the map.

    Attributes:
        names: of these rewards.
        spec: how their windows move.
    """

    def __init__(self, names: Sequence[str], spec: Quantile) -> None:
        self.names = tuple(names)
        self.spec = spec
        self._batches = 0
        self._windows: dict[str, Window] = {}

    def map(
        self,
        rewards_B_K: Tensor,
        group_ids_B: Tensor,
        names: Sequence[str],
        *,
        valid_B: Tensor | None = None,
        keep: bool = True,
    ) -> Tensor:
        """Rewards [B, K] with those of ``self.names`` in place of their values.

        Args:
            rewards_B_K: float32 or float64 [B, K], finite or NaN in valid rows.
            group_ids_B: int64 [B], one label per prompt group.
            names: K names.
            valid_B: bool [B]; False takes the row out of the windows.
            keep: False maps as with this batch, and forgets it: for rows that are only looked at.
        """
        mapped_B_K = rewards_B_K.clone()
        ids_B = group_ids_B.cpu()
        due = self._batches % self.spec.refresh == 0
        for name in self.names:
            k = names.index(name)
            values_B = rewards_B_K[:, k].double().cpu()
            counts_B = ~values_B.isnan() if valid_B is None else ~values_B.isnan() & valid_B.cpu()
            window = self._windows.get(name) or Window.empty()
            window = window.after(values_B[counts_B], ids_B[counts_B], self.spec.window, due)
            mapped_B_K[:, k] = window.place(values_B).to(mapped_B_K)
            if keep:
                self._windows[name] = window
        self._batches += keep
        return mapped_B_K

    def save(self, folder: Path) -> None:
        """Write the windows into a checkpoint's folder."""
        import torch

        state: dict[str, Any] = {name: vars(window) for name, window in self._windows.items()}
        torch.save({"batches": self._batches, "windows": state}, folder / FILE)

    def restore(self, folder: Path | None) -> None:
        """Go on with the windows of a checkpoint's folder; None: with none.

        Raises:
            RunDirError: the folder has no windows, or those of other rewards.
        """
        import torch

        self._batches, self._windows = 0, {}
        if folder is None:
            return
        file = folder / FILE
        if not file.exists():
            raise RunDirError(
                f"{folder} has no {FILE}, which normalise: quantile goes on from; it was written without it. Begin anew"
            )
        state = torch.load(file, weights_only=True)
        if set(state["windows"]) != set(self.names):
            raise RunDirError(f"{file} is about {', '.join(state['windows'])}; expected {', '.join(self.names)}")
        self._batches = state["batches"]
        self._windows = {name: Window(**window) for name, window in state["windows"].items()}
