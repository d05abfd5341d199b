"""What the draft model has read of the text.

Its cache holds a prefix of `ids[start:-1]`, ids being the committed tokens: a draft model need
not see everything, since q may be anything. Drafted tokens that were accepted stay; what it
lacks is read in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from localspec.llama.context import Context

__all__ = ["DraftCache"]

PROMPT_WINDOW = 2048  # tokens at the end of a long prompt that the draft model reads
_LONGEST_GAP = 192  # after a longer rest it begins anew with the last few tokens
_SHORT_WINDOW = 64
_LEAST_SHARED = 16


class DraftCache:
    """A draft model's context and where its view of the text begins. It outlives an answer.

    foreign_ids: ids that mean something else to the draft model; they are never fed, and text
    up to the last of them is left out of its view.
    """

    def __init__(
        self, context: Context, *, n_vocab_target: int, foreign_ids: Collection[int] = ()
    ) -> None:
        self.context = context
        self.n_shared = min(context.n_vocab, n_vocab_target)
        self.foreign_ids = frozenset(foreign_ids)
        self._start = 0
        self._n_checked = 0

    def is_readable(self, token: int) -> bool:
        """True when the draft model knows this id and means the same by it."""
        return token < self.n_shared and token not in self.foreign_ids

    @property
    def start(self) -> int:
        """Tokens at the beginning of the text that it never read."""
        return self._start

    def resume(self, start: int) -> None:
        """The context was filled from outside with `ids[start:]` of a text."""
        self._start = start

    def clear(self) -> None:
        """Forget everything, as after a fresh load."""
        self.context.clear()
        self._start = 0
        self._n_checked = 0

    def prepare(self, ids: Sequence[int], worth_reading: Callable[[int], bool]) -> None:
        """Read a prompt, its last token apart, or the end of a long one; or nothing of it."""
        self._n_checked = 0
        self._skip_foreign(ids)
        kept = self.context.keep_prefix(ids[self._start : -1])
        if kept < _LEAST_SHARED and self._start:  # another text: its beginning counts again
            self.context.clear()
            self._start = 0
            self._n_checked = 0
            self._skip_foreign(ids)
        window = min(PROMPT_WINDOW, self.context.n_ctx // 2)
        if len(ids) - self._start - len(self.context.ids) > window:
            self._restart(ids, window)
        new = ids[self._start + len(self.context.ids) : -1]
        if new and len(new) <= self.room and worth_reading(len(new)):
            self.context.decode(new, n_rows=0)
            self.context.checkpoint(keep=True)

    def missing(self, ids: Sequence[int]) -> int | None:
        """Tokens to decode before it can draft; None when it cannot."""
        self._skip_foreign(ids)
        n = len(ids) - self._start - len(self.context.ids)
        if n > _LONGEST_GAP or len(ids) - self._start >= self.context.n_ctx:
            n = min(_SHORT_WINDOW, len(ids))
        return n if self._start < len(ids) else None

    def read(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Catch up in one batch: the logits after `ids`, float32, shape (n_shared,).

        Raises what Context.decode raises.
        """
        n = len(ids) - self._start - len(self.context.ids)
        if n > _LONGEST_GAP or len(ids) - self._start >= self.context.n_ctx:
            self._restart(ids, _SHORT_WINDOW)
        view = ids[self._start :]
        kept = self.context.keep_prefix(view[:-1])
        row = self.context.decode(view[kept:], n_rows=1)[0][: self.n_shared]
        self.context.checkpoint()  # a refused draft goes back to here
        return row

    def step(self, token: int) -> npt.NDArray[np.float32]:
        """The logits after one more drafted token."""
        return self.context.decode([token], n_rows=1)[0][: self.n_shared]

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.context.n_ctx - len(self.context.ids)

    def settle(self, ids: Sequence[int]) -> None:
        """Cut the cache to what is committed, the last token apart, or to a checkpoint before."""
        self.context.keep_prefix(ids[self._start : -1])

    def _restart(self, ids: Sequence[int], window: int) -> None:
        self.context.clear()
        self._start = max(self._start, len(ids) - window)

    def _skip_foreign(self, ids: Sequence[int]) -> None:
        for i in range(self._n_checked, len(ids)):
            if not self.is_readable(ids[i]):
                self._start = i + 1
        self._n_checked = len(ids)
