"""The words around the conversation: title, what goes on, why drafting is off, what fits."""

from __future__ import annotations

from textual.content import Content

from localspec.chat.chat import Chat
from localspec.chat.commands import COMMANDS
from localspec.visible import visible

__all__ = ["completed", "status_words", "suggestions", "title_words", "welcome_words"]

_N_SUGGESTED = 7


def title_words(chat: Chat, width: int) -> str:
    """Which models, where they run."""
    talker = chat.talker
    if talker is None:
        return _fitted("localspec", width)
    target = talker.target_path.stem
    draft = talker.draft_path.stem if talker.draft_path is not None else "no draft model"
    threads = "thread" if talker.n_threads == 1 else "threads"
    where = f"{talker.device}, {talker.n_threads} {threads}"
    exact = ", exact" if talker.exact else ""
    for words in (
        f"localspec · {target} + {draft} · {where}{exact}",
        f"{target} + {draft}{exact}",
    ):
        if len(words) <= width:
            return visible(words)
    return _fitted(target + exact, width)


def status_words(chat: Chat, width: int) -> str:
    """One line: what takes time now, what failed, or why nothing is drafted."""
    if chat.loading is not None:
        fetching = chat.fetching
        waits = " · your question waits" if chat.waiting is not None else ""
        if fetching is not None and fetching.total:
            share = fetching.done / fetching.total
            cells = 10 if width < 60 else 24
            bar = "━" * round(cells * share) + "─" * (cells - round(cells * share))
            done, total = fetching.done / 1e6, fetching.total / 1e6
            words = (
                f"{bar} {share:.0%} · {done:,.0f}/{total:,.0f} MB · Esc stops · {fetching.label}"
            )
            return _fitted(words + waits, width)
        return _fitted(chat.loading + waits, width)
    if chat.failure is not None:
        return visible(chat.failure)
    if chat.saved.broken is not None:
        return visible(chat.saved.broken)
    return _fitted(_why_not_drafting(chat), width)


def _why_not_drafting(chat: Chat) -> str:
    options = chat.settings.options
    if options.drafter == "none":
        return "drafting is off (/drafter auto turns it on)"
    if chat.talker is None:
        return ""
    last = chat.conversation.last("assistant") if chat.live is None else None
    for note in last.notes if last is not None else ():
        if "draft" in note:
            return note
    if chat.outlook and "pay here" in chat.outlook:
        return chat.outlook
    if last is not None and last.timings.get("predicted_n") and not last.timings.get("draft_n"):
        return "nothing was worth drafting in this answer; /ndraft 4 drafts all the same"
    return ""


def welcome_words(chat: Chat) -> str:
    """What an empty conversation says."""
    return (
        "Ask something. Accepted guesses are underlined, rejected ones flash struck through; "
        "Ctrl+T shows less of that, or every round. F1 shows all keys, / all commands."
        if chat.settings.view != "off"
        else "Ask something. F1 shows all keys, / all commands; Ctrl+T shows the guesses."
    )


def suggestions(text: str, width: int) -> str:
    """The commands that begin like the text, one a line; empty when it is no command."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text:
        return ""
    name, space, _ = text[1:].partition(" ")
    fit = [c for c in COMMANDS if (c.name == name if space else c.name.startswith(name))]
    lines = [f"/{c.name} {c.usage}".rstrip().ljust(30) + f" {c.summary}" for c in fit]
    more = [f"… {len(lines) - _N_SUGGESTED} more: /help"] if len(lines) > _N_SUGGESTED else []
    return "\n".join(_fitted(line, width) for line in [*lines[:_N_SUGGESTED], *more])


def completed(text: str) -> str | None:
    """The text with its command completed, None when there is nothing to complete."""
    if not text.startswith("/") or " " in text or "\n" in text:
        return None
    fit = [c for c in COMMANDS if c.name.startswith(text[1:])]
    return f"/{fit[0].name}{' ' if fit[0].usage else ''}" if fit else None


def _fitted(words: str, width: int) -> str:
    words = visible(" ".join(words.split("\n")))
    shown = Content(words)
    return (
        words if shown.cell_length <= width else str(shown.truncate(max(1, width), ellipsis=True))
    )
