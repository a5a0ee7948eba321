"""Words that figures and pages share."""

from collections.abc import Sequence


def about(
    data: Sequence[str | None], seeds: Sequence[int], spread: bool = True, everywhere: bool = True
) -> str:
    """Return a figure's sub-title: the data, the seeds, and what is shown of several.

    `spread` says whether the standard deviation is shown, `everywhere` whether each cell has all seeds.

    Examples
    --------
    >>> about(["digits", "rotate"], [0, 1, 2])
    'digits, rotate; seeds 0 to 2; mean ± std over seeds'
    >>> about(["heart", None], [3])
    'heart; seed 3'
    >>> about(["pacs"], [1, 4], spread=False, everywhere=False)
    'pacs; seeds 1, 4 (fewer in some cells); mean over seeds'
    """
    shown = f"mean{' ± std' * spread} over seeds" if len(seeds) > 1 else ""
    named = name_seeds(seeds) + " (fewer in some cells)" * (not everywhere)
    return "; ".join(filter(None, [", ".join(filter(None, data)), named, shown]))


def name_seeds(seeds: Sequence[int]) -> str:
    """Return ``seeds 0 to 2``, ``seeds 1, 4`` or ``seed 0``; nothing for no seeds."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" if seeds else ""
