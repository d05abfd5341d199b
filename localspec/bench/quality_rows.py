"""What a target quant costs in quality, and how near a draft is to its target: the rows alone.

Measured elsewhere (teacher-forced over a text); here is only the shape in which the report, the
recommendation and results.jsonl know it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["AgreementRow", "QualityRow", "agreement_of", "quality_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """One target against `reference`, the best of its sweep or its source. KL in nats.

    *_error: one standard error. kl_* and top1_agreement are None for the reference itself.
    text: what was read. error: why it could not be measured; the figures are None then.
    """

    target: str
    reference: str | None = None
    perplexity: float | None = None
    perplexity_error: float | None = None
    kl_mean: float | None = None
    kl_error: float | None = None
    top1_agreement: float | None = None
    n_tokens: int = 0
    text: str | None = None
    error: str | None = None

    def as_row(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {"type": "quality", **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRow:
    """Draft against target over the same text: mean KL in nats, and mean Σ min(p, q)."""

    target: str
    draft: str
    kl: float | None = None
    sum_min: float | None = None
    n_tokens: int = 0
    error: str | None = None

    def as_row(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {"type": "agreement", **dataclasses.asdict(self)}


def quality_of(row: Mapping[str, Any]) -> QualityRow:
    """The QualityRow of a row."""
    return _read(QualityRow, row)


def agreement_of(row: Mapping[str, Any]) -> AgreementRow:
    """The AgreementRow of a row."""
    return _read(AgreementRow, row)


def _read(kind: type[T], row: Mapping[str, Any]) -> T:
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if name in row})
