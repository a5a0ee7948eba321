"""Random numbers of data sets: PyTorch's on the CPU, bit for bit, without PyTorch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Generator:
    """A Mersenne Twister with the numbers of ``torch.Generator().manual_seed(seed)``.

    So data are dealt in the same way with and without PyTorch. Matsumoto and Nishimura, "Mersenne Twister",
    1998.

    Examples
    --------
    >>> Generator(0).permutation(5).tolist()
    [4, 0, 1, 3, 2]
    """

    def __init__(self, seed: int) -> None:
        self._twister = np.random.MT19937()
        state: Any = np.random.RandomState(seed % 2**32).get_state(legacy=False)
        self._twister.state = state

    def permutation(self, length: int) -> NDArray[np.int64]:
        """Return the numbers from 0 in random order, as ``torch.randperm`` does."""
        order = [*range(length)]
        if length > 1:
            left = np.arange(length, 1, -1, dtype=np.uint64)
            steps = self._twister.random_raw(length - 1) % left
            for place, other in enumerate((steps + (length - left)).tolist()):
                order[place], order[other] = order[other], order[place]
        return np.array(order, dtype=np.int64)

    def uniform(self, length: int) -> NDArray[np.float32]:
        """Return numbers in [0, 1), multiples of 2⁻²⁴, as ``torch.rand`` does."""
        drawn: NDArray[Any] = self._twister.random_raw(length) % 2**24
        return (drawn * 2.0**-24).astype(np.float32)

    def integer(self, end: int) -> int:
        """Return a whole number from 0 to below `end`, above 2³², as ``torch.randint`` does."""
        high, low = (int(number) for number in self._twister.random_raw(2))
        return ((high << 32) | low) % end
