"""What a chat runs with: models, how they are loaded, how answers are made, what is shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from localspec.chat.engine_protocol import OpenPair
from localspec.errors import InvalidOptionError
from localspec.session.options import LoadOptions, Options, parse

__all__ = ["VIEWS", "ChatSettings"]

VIEWS = ("off", "inline", "inspector")


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """draft: a reference, `auto`, or None. loading, answering: fields of LoadOptions and Options
    that differ from their defaults. view: how draft tokens are shown, one of VIEWS.
    Raises InvalidOptionError for what those refuse.
    """

    target: str = "default"
    draft: str | None = "auto"
    loading: dict[str, Any] = field(default_factory=dict)
    answering: dict[str, Any] = field(default_factory=dict)
    view: str = "inline"

    def __post_init__(self) -> None:
        parse(LoadOptions, self.loading)
        parse(Options, self.answering)
        if self.view not in VIEWS:
            raise InvalidOptionError(f"the view is {self.view!r}: choose one of {', '.join(VIEWS)}")

    @property
    def options(self) -> Options:
        """How the next answer is made."""
        return parse(Options, self.answering)

    @property
    def open_request(self) -> OpenPair:
        """What the engine is to load."""
        return OpenPair(self.target, self.draft, dict(self.loading))

    def answer_with(self, **changes: Any) -> ChatSettings:
        """With other options of answers; None takes the default again."""
        merged = {**self.answering, **changes}
        return replace(self, answering={k: v for k, v in merged.items() if v is not None})

    def load_with(self, **changes: Any) -> ChatSettings:
        """With other options of loading; None takes the default again."""
        merged = {**self.loading, **changes}
        return replace(self, loading={k: v for k, v in merged.items() if v is not None})
