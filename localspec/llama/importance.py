"""An importance matrix for the quantiser: how much each input of each weight matters.

Reads the GGUF files that llama.cpp's llama-imatrix writes, and lays them out as
`llama_model_quantize` wants them. Knows nothing of how such a matrix is measured.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from localspec.errors import ModelFileError, ModelNotFoundError

__all__ = ["Importance", "read_importance"]

_SUMS, _COUNTS = ".in_sum2", ".counts"


class Importance:
    """Mean squares of the inputs, float32, by weight name; `native` points into it."""

    def __init__(self, path: Path, means: dict[str, npt.NDArray[np.float32]]) -> None:
        self.path = path
        self.means = means
        kind = llama_cpp.llama_model_imatrix_data
        floats = ctypes.POINTER(ctypes.c_float)
        self._array = (kind * (len(means) + 1))()  # the last one, without a name, ends the list
        for entry, (name, values) in zip(self._array, means.items(), strict=False):
            entry.name = name.encode()
            entry.data = values.ctypes.data_as(floats)
            entry.size = values.size

    @property
    def native(self) -> Any:
        """For llama_model_quantize_params.imatrix; valid as long as this object lives."""
        return self._array


def read_importance(path: Path) -> Importance:
    """Raises ModelNotFoundError, and ModelFileError for a file that is no importance matrix."""
    import gguf

    if not path.is_file():
        raise ModelNotFoundError(f"there is no importance matrix {path}")
    try:
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name: np.array(tensor.data, np.float32) for tensor in reader.tensors}
    except Exception as error:  # the reader meets damage with whatever its parsing raises
        raise ModelFileError(
            f"{path} is no importance matrix in GGUF ({error}): make one with llama.cpp's "
            "llama-imatrix, or convert an old .dat file with `llama-imatrix --in-file`"
        ) from None
    means = {}
    for name, sums in tensors.items():
        counts = tensors.get(name.removesuffix(_SUMS) + _COUNTS)
        if name.endswith(_SUMS) and counts is not None:
            means[name.removesuffix(_SUMS)] = _means(sums, counts)
    if not means:
        raise ModelFileError(f"{path} holds no importance matrix: it has no tensor *{_SUMS}")
    return Importance(path, means)


def _means(
    sums: npt.NDArray[np.float32], counts: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Sums over counts, for each expert apart; 1 where an expert was never used, as llama.cpp."""
    table = sums.reshape(counts.size, -1)
    each = counts.reshape(-1, 1)
    mean = np.where(each > 0, table / np.maximum(each, 1.0), np.float32(1.0))
    return np.ascontiguousarray(mean, np.float32).ravel()
