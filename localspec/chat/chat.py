"""A chat without a screen: the conversation, the answer that grows, and what may happen when.

All methods belong to the front end's thread. The speaker's thread is heard in poll() alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from localspec.chat.attachments import Attachment, expand
from localspec.chat.conversation import Conversation, Turn, new_id
from localspec.chat.engine_thread import (
    Answered,
    Fetching,
    Loaded,
    Loading,
    News,
    Speaker,
    Talker,
)
from localspec.chat.fitting import Fitted, answer_room, fit
from localspec.chat.live_answer import Figures, Live
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.chat.thinking import opens_thinking, split
from localspec.decoding.events import Finished, Prefill
from localspec.errors import BusyError, InvalidOptionError, LocalspecError
from localspec.session.marks import Mark

__all__ = ["Chat", "Live"]

_SAVE_EVERY_S = 1.0
N_ALTERNATIVES = 5


class Chat:
    """One conversation with one loaded pair; front ends show it and call it.

    clock: seconds that only go forward.
    """

    def __init__(
        self,
        speaker: Speaker,
        settings: ChatSettings,
        saved: SavedChat | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.saved = saved or SavedChat()
        self.talker: Talker | None = None
        self.live: Live | None = None
        self.loading: str | None = None  # what takes time now
        self.fetching: Fetching | None = None
        self.failure: str | None = None  # why no model is loaded
        self.outlook: str | None = None
        self.figures: Figures | None = None  # of the last answer
        self.waiting: Turn | None = None  # a question asked before the model was ready
        self._speaker = speaker
        self._clock = clock
        self._oldest: str | None = None  # the turn from which the model is given the conversation

    @property
    def conversation(self) -> Conversation:
        """What was said."""
        return self.saved.conversation

    @property
    def is_busy(self) -> bool:
        """True while an answer grows or a model loads."""
        return self.live is not None or self.loading is not None

    def load(self, settings: ChatSettings | None = None) -> None:
        """Load what the settings name; the conversation stays. Raises BusyError in an answer."""
        self._require_silence()
        if settings is not None:
            self.settings = settings
        self.talker = self._oldest = None  # another context may hold more
        self.failure = self.outlook = None
        self.loading = "loading …"
        self._speaker.load(self.settings.order)

    def send(self, text: str) -> list[Attachment]:
        """Ask; `@path` attaches files, which are returned.

        Asked before the model is ready, the question waits for it. Raises BusyError in an
        answer, AttachmentError, InvalidOptionError for nothing, ContextOverflowError for a message
        that the context cannot hold; older messages are left out first (see talk/fitting.py).
        """
        self._require_silence(may_load=True)
        if not text.strip():
            raise InvalidOptionError("the message is empty")
        if self.talker is None and self.loading is None:
            raise InvalidOptionError(f"no model is loaded: {self.failure or 'use /model'}")
        if self.waiting is not None:
            raise BusyError("a question is waiting for the model already")
        told, attachments = expand(text)
        self._ask(told, self.conversation.head)
        return attachments

    def edit(self, turn_id: str, text: str) -> None:
        """Ask an earlier question differently: a new branch beside it."""
        self._require_silence()
        self._require_model()
        if not text.strip():
            raise InvalidOptionError("the message is empty")
        turn = self.conversation.turns.get(turn_id)
        if turn is None:
            raise InvalidOptionError("that question is in another chat: /load opens it again")
        self._ask(expand(text)[0], turn.parent)

    def retry(self, turn_id: str | None = None) -> None:
        """Answer a question once more, on a branch beside its answer; by default the last one.

        turn_id: a question, or an answer to it.
        """
        self._require_silence()
        self._require_model()
        question = self.conversation.turns[turn_id] if turn_id else self.conversation.last("user")
        while question is not None and question.role == "assistant":  # a file may have several
            question = self.conversation.turns.get(question.parent or "")
        if question is None:
            raise InvalidOptionError("there is no question yet")
        self._answer(question)

    def continue_answer(self) -> None:
        """Go on where the last answer was cut."""
        self._require_silence()
        self._require_model()
        turn = self.conversation.turns.get(self.conversation.head or "")
        if turn is None or turn.role != "assistant":
            raise InvalidOptionError("there is no answer to continue")
        if turn.reason == "eos":
            raise InvalidOptionError("the answer is complete: ask on, or /retry")
        assert self.talker is not None
        if turn.model and turn.model != self.talker.target_path.name:
            raise InvalidOptionError(
                f"the answer was written by {turn.model}, and {self.talker.target_path.name} is "
                "loaded: /retry answers anew"
            )
        self._begin(turn.parent, self._fit(turn.parent, n_behind=len(turn.token_ids)), turn)

    def branch(self, turn_id: str, step: int) -> None:
        """Read the neighbouring branch at this turn."""
        self._require_silence()
        self.conversation.branch(turn_id, step)
        self.saved.set_head()
        self.figures = None  # they are of the answer that was made last

    def stop(self) -> bool:
        """End the answer and keep it; False when there is none."""
        if self.live is None:
            return False
        self.live.stopping = True
        self._speaker.stop()
        return True

    def stop_loading(self) -> None:
        """Give up a download or a load at its next step."""
        self._speaker.stop()

    def start_over(self, saved: SavedChat | None = None) -> None:
        """A new conversation, or a saved one; the system prompt of the old one is kept."""
        self._require_silence()
        system = self.conversation.system
        self.saved.close()
        self.saved = saved or SavedChat()
        if saved is None:
            self.saved.conversation.system = system
        self.figures = None
        self._oldest = None

    def set_system(self, text: str) -> None:
        """Another system prompt for the answers from here on."""
        self.saved.set_system(text)

    def count_tokens(self, text: str) -> int | None:
        """Tokens of a text; None while no model is loaded. Safe in any thread."""
        return self._speaker.count_tokens(text) if self.talker is not None and text else None

    def poll(self) -> list[tuple[News, list[Mark]]]:
        """Take in what the speaker told; each news with the marks that it added to the answer."""
        heard: list[tuple[News, list[Mark]]] = []
        while not self._speaker.news.empty():
            news = self._speaker.news.get()
            heard.append((news, self._hear(news)))
        if self.live is not None:
            self._save_growth(self.live)
        return heard

    def close(self) -> bool:
        """End everything; an unfinished answer is kept as it stands. False if a thread hangs."""
        if self.live is not None:
            live = self.live
            self.stop()
            deadline = self._clock() + 1.0
            while self.live is not None and self._clock() < deadline:
                time.sleep(0.01)
                self.poll()
            if self.live is not None and (live.text or live.before):
                self._finish(live, "interrupted", {}, ())
        ended = self._speaker.close()
        self.saved.close()
        return ended

    def _ask(self, text: str, parent: str | None) -> None:
        question = Turn(new_id(), parent, "user", text)
        fitted = self._fit(parent, question) if self.talker is not None else None
        self.saved.add(question)
        if fitted is None:
            self.waiting = question
        else:
            self._begin(question.id, fitted)

    def _answer(self, question: Turn) -> None:
        fitted = self._fit(question.id)
        self.conversation.head = question.id
        self._begin(question.id, fitted)

    def _fit(self, head: str | None, question: Turn | None = None, n_behind: int = 0) -> Fitted:
        """What the model is given of the branch up to `head`, and of a question behind it."""
        talker = self.talker
        assert talker is not None
        turns = self.conversation.path(head) if head is not None else []
        messages = self.conversation.messages(head)
        if question is not None:
            turns.append(question)
            messages.append({"role": "user", "content": question.text})
        ids = [turn.id for turn in turns]
        oldest = self._oldest
        first = ids.index(oldest) if oldest is not None and oldest in ids else 0
        fitted = fit(
            messages,
            lambda some: len(talker.encode(some)),
            talker.n_ctx,
            room=answer_room(talker.n_ctx, self.settings.options.max_tokens),
            n_behind=n_behind,
            first=first,
        )
        self._oldest = ids[fitted.first] if fitted.first else None
        return fitted

    def _begin(self, parent: str | None, fitted: Fitted, before: Turn | None = None) -> None:
        talker = self.talker
        assert talker is not None
        messages = fitted.messages
        opened = opens_thinking(talker.render(messages))
        turn = before or Turn(
            new_id(), parent, "assistant", "", model=talker.target_path.name, opened=opened
        )
        options: dict[str, Any] = dict(self.settings.answering)
        if self.settings.view != "off":
            options["n_alternatives"] = N_ALTERNATIVES
        prompt: Any = messages
        if before is not None:
            prompt = [*talker.encode(messages), *before.token_ids]
        self.live = Live(turn, before, self._clock())
        if fitted.notice is not None:
            self.live.notes = (fitted.notice,)
        if before is not None:
            self.live.text = before.text
            self.live.go_on_thinking(before)
            self.live.n_saved = len(before.text)
        self.figures = self.live.figures
        self._speaker.answer(turn.id, prompt, options)

    def _hear(self, news: News) -> list[Mark]:
        if isinstance(news, Answered):
            if self.live is not None and news.id == self.live.turn.id:
                return self._grow(self.live, news)
        elif isinstance(news, Loading):
            self.loading = news.words
            self.fetching = None
        elif isinstance(news, Fetching):
            self.fetching = news
        elif isinstance(news, Loaded):
            self.talker, self.outlook = news.talker, news.outlook
            self.loading = self.fetching = self.failure = None
            question, self.waiting = self.waiting, None
            if question is not None:
                try:
                    self._answer(question)
                except LocalspecError as error:
                    self.failure = str(error)
        elif news.id is None:
            self.failure = news.error
            self.loading = self.fetching = self.waiting = None
        elif self.live is not None and news.id == self.live.turn.id:
            self._fail(self.live)
        return []

    def _grow(self, live: Live, news: Answered) -> list[Mark]:
        event = news.event
        if isinstance(event, Prefill):
            live.prompt_done, live.prompt_total = event.done, event.total
            return []
        if isinstance(event, Finished):
            timings: dict[str, Any] = dict(event.stats.timings())
            timings |= {
                "drafter": event.stats.drafter,
                "verifier": event.stats.verifier,
                "seed": event.stats.seed,
            }
            live.figures.settle(event.stats.predicted_n)
            speed_up = live.figures.speed_up
            if speed_up is not None:
                timings["speed_up_estimated"] = speed_up
            ids = (live.before.token_ids if live.before else ()) + event.token_ids
            self._finish(live, event.reason, timings, event.stats.notes, ids)
            return []
        live.rounds.append(event)
        live.figures.add(event, news.plain_s)
        live.text += event.text
        now = self._clock()
        if event.text and live.figures.first_token_s is None:
            live.figures.first_token_s = now - live.started
        self._time_thinking(live, now)
        return live.marked.push(event)

    def _time_thinking(self, live: Live, now: float) -> None:
        if live.thinking_s is not None:
            return
        parts = split(live.text, opened=live.turn.opened)
        if parts.thinking is None:
            return
        if live.thinking_since is None:
            live.thinking_since = now
        if not parts.is_open:
            live.thinking_s = now - live.thinking_since

    def _finish(
        self,
        live: Live,
        reason: str,
        timings: dict[str, Any],
        notes: tuple[str, ...],
        token_ids: tuple[int, ...] | None = None,
    ) -> None:
        self.live = None
        before = live.before.rounds if live.before else ()
        if token_ids is None:
            token_ids = live.committed_ids()
        if not live.text and reason in ("cancelled", "interrupted"):
            return  # stopped before the first word: nothing to keep
        self.saved.add(
            replace(
                live.turn,
                text=live.text,
                token_ids=token_ids,
                reason=reason,
                timings=timings,
                rounds=(*before, *live.rounds),
                thinking_s=live.thought_s(self._clock()),
                notes=(*live.notes, *notes),
            )
        )

    def _fail(self, live: Live) -> None:
        """What was made before an error is kept."""
        if live.rounds:
            self._finish(live, "interrupted", {}, ())
        self.live = None

    def _save_growth(self, live: Live) -> None:
        now = self._clock()
        if now - live.saved_at < _SAVE_EVERY_S or len(live.text) == live.n_saved:
            return
        new = live.rounds[live.n_saved_rounds :]
        ids = [token.id for round_ in new for token in round_.tokens if token.committed]
        self.saved.grow(live.turn, live.text[live.n_saved :], ids, at=live.n_saved)
        live.n_saved, live.n_saved_rounds = len(live.text), len(live.rounds)
        live.saved_at = now

    def _require_silence(self, *, may_load: bool = False) -> None:
        if self.live is not None:
            raise BusyError("an answer is being written: Esc stops it")
        if self.loading is not None and not may_load:
            raise BusyError("a model is being loaded: wait for it")

    def _require_model(self) -> None:
        if self.talker is None:
            raise InvalidOptionError(f"no model is loaded: {self.failure or 'use /model'}")
