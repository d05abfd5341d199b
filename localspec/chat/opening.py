"""From an order to a loaded pair, telling what takes time on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from localspec.chat.engine_thread import Fetching, Loading, News, Order, Talker
from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions, parse
from localspec.session.session import Session

__all__ = ["open_pair"]


class _Talker(Session):
    """A session that prepares itself before the first answer, in the thread that decodes."""

    def prepare(self, on_note: Callable[[str], None]) -> str | None:
        """Measure what the first answer would need; whether the draft model pays, in words."""
        if self.exact:
            on_note("exact mode: looking for batch sizes with the bits of single steps …")
            self.exact_sizes(
                lambda depth: on_note(f"exact mode: comparing batch sizes at depth {depth:,} …")
            )
        if not self.can_draft:
            return None
        on_note("measuring what decoding costs here …")
        _ = self.costs
        outlook = self.outlook()
        return outlook.words if outlook is not None else None


def open_pair(order: Order, tell: Callable[[News], None]) -> Talker:
    """Resolve, fetch and load. Raises a LocalspecError that says what to do next."""
    options = parse(LoadOptions, order.options)
    wanted = pair_draft(order.target) if order.draft == "auto" else order.draft
    target = _resolve(order.target, "target", tell)
    draft = _resolve(wanted, "draft", tell) if wanted is not None else None
    names = target.name if draft is None else f"{target.name} + {draft.name}"
    tell(Loading(f"loading {names} …"))
    return _Talker(target, draft, options)


def _resolve(reference: str, role: str, tell: Callable[[News], None]) -> Path:
    tell(Loading(f"looking for {reference} …"))
    return resolve(
        reference,
        role=role,
        on_progress=lambda label, done, total: tell(Fetching(label, done, total)),
        on_note=lambda note: tell(Loading(note)),
    )
