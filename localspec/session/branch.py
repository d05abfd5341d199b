"""A text that grows on a session, and forks.

A fork costs nothing: both know their token ids, and the session's cache keeps the longest prefix
of whoever is asked next. Going from one fork to another evaluates what they do not share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localspec.session.completion import Completion

__all__ = ["Branch"]


class Branch:
    """Made by Session.branch(). `ids`: the text so far as token ids, a tuple.

    Branches may outlive each other and be used in any order, one at a time.
    """

    def __init__(
        self,
        complete: Callable[..., Completion],
        tokenize: Callable[[str], list[int]],
        spell: Callable[[Sequence[int]], str],
        ids: tuple[int, ...],
    ) -> None:
        self._complete = complete
        self._tokenize = tokenize
        self._spell = spell
        self.ids = ids

    @property
    def text(self) -> str:
        """The ids as text; control tokens add nothing."""
        return self._spell(self.ids)

    def fork(self) -> Branch:
        """Another text with the same beginning."""
        return Branch(self._complete, self._tokenize, self._spell, self.ids)

    def append(self, more: str | Sequence[int]) -> Branch:
        """Text or token ids behind what is there; returns the branch itself."""
        added = self._tokenize(more) if isinstance(more, str) else [int(token) for token in more]
        self.ids = (*self.ids, *added)
        return self

    def complete(self, **options: Any) -> Completion:
        """Let the model go on; its tokens become part of the text. Options as for a Session."""
        result = self._complete(list(self.ids), **options)
        self.ids = (*self.ids, *result.token_ids)
        return result

    def __repr__(self) -> str:
        return f"Branch({len(self.ids)} tokens, …{self.text[-40:]!r})"
