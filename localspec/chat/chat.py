"""A chat without a screen: the conversation, the answer that grows, and what may happen when.

All methods but count_tokens belong to the front end's thread; replies of the engine are taken in
by poll() alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from localspec.chat.attachments import Attachment, expand
from localspec.chat.context_fit import FittedMessages, answer_room, fit
from localspec.chat.conversation import Conversation, Turn, new_id
from localspec.chat.engine_protocol import (
    AnswerEvent,
    AnswerStarted,
    ChatEngine,
    Downloading,
    Failed,
    Generate,
    LoadedPair,
    Loading,
    Reply,
)
from localspec.chat.live_answer import Figures, LiveAnswer
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.decoding.events import Finished, Prefill
from localspec.errors import BusyError, InvalidOptionError, LocalspecError
from localspec.session.marks import Mark

__all__ = ["Chat"]

_SAVE_EVERY_S = 1.0
_KEEP_WITHIN_S = 1.0  # that a stopped answer may take to finish when the chat is closed
_N_ALTERNATIVES = 5  # likely tokens shown for each position


class Chat:
    """One conversation with one loaded pair; front ends show it and call it.

    clock: seconds that only go forward.
    """

    def __init__(
        self,
        engine: ChatEngine,
        settings: ChatSettings,
        saved: SavedChat | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.saved = saved or SavedChat()
        self.pair: LoadedPair | None = None
        self.live: LiveAnswer | None = None
        self.loading: str | None = None  # what takes time now
        self.download: Downloading | None = None
        self.failure: str | None = None  # why no model is loaded
        self.figures: Figures | None = None  # of the last answer
        self.waiting: Turn | None = None  # a question asked before the model was ready
        self._engine = engine
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

    @property
    def can_stop(self) -> bool:
        """True when stop() would end something that is not ending yet."""
        return not self.live.stopping if self.live is not None else self.loading is not None

    def load(self, settings: ChatSettings | None = None) -> None:
        """Load what the settings name; the conversation stays. Raises BusyError in an answer."""
        self._require_silence()
        if settings is not None:
            self.settings = settings
        self.pair = self._oldest = None  # another context may hold more
        self.failure = None
        self.loading = "loading …"
        self._engine.open(self.settings.open_request)

    def send(self, text: str) -> list[Attachment]:
        """Ask; `@path` attaches files, which are returned.

        Asked before the model is ready, the question waits for it. Raises BusyError in an
        answer, AttachmentError, InvalidOptionError for nothing, ContextOverflowError for a message
        that the context cannot hold; older messages are left out first (see context_fit.py).
        """
        self._require_silence(may_load=True)
        if not text.strip():
            raise InvalidOptionError("the message is empty")
        if self.loading is None:
            self._require_model()
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
        loaded = self._require_model().target_path.name
        turn = self.conversation.turns.get(self.conversation.head or "")
        if turn is None or turn.role != "assistant":
            raise InvalidOptionError("there is no answer to continue")
        if turn.reason == "eos":
            raise InvalidOptionError("the answer is complete: ask something else, or /retry")
        if turn.model and turn.model != loaded:
            raise InvalidOptionError(
                f"the answer was written by {turn.model}, and {loaded} is loaded: /retry answers "
                "again"
            )
        self._begin(turn.parent, self._fit(turn.parent, n_continued=len(turn.token_ids)), turn)

    def branch(self, turn_id: str, step: int) -> None:
        """Read the neighbouring branch at this turn."""
        self._require_silence()
        self.conversation.branch(turn_id, step)
        self.saved.set_head()
        self.figures = None  # they are of the answer that was made last

    def stop(self) -> bool:
        """End the answer and keep it, or give up a load; False when there is neither."""
        if not self.is_busy:
            return False
        if self.live is not None:
            self.live.stopping = True
        self._engine.cancel()
        return True

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
        """Tokens of a text; None while no model is loaded. Callable from any thread."""
        return self._engine.count_tokens(text) if self.pair is not None and text else None

    def poll(self) -> list[tuple[Reply, list[Mark]]]:
        """Take in what the engine replied; each reply with the marks that it adds to the answer."""
        taken: list[tuple[Reply, list[Mark]]] = []
        while (reply := self._engine.receive()) is not None:
            taken.append((reply, self._take(reply)))
        if self.live is not None:
            self._save_growth(self.live)
        return taken

    def close(self) -> bool:
        """End everything; an unfinished answer is kept as it stands. False if the engine hangs."""
        if self.live is not None:
            live = self.live
            self.stop()
            deadline = self._clock() + _KEEP_WITHIN_S
            while self.live is not None and self._clock() < deadline:
                time.sleep(0.01)
                self.poll()
            if self.live is not None and (live.text or live.before):
                self._finish(live, "interrupted")
        ended = self._engine.close()
        self.saved.close()
        return ended

    def _ask(self, text: str, parent: str | None) -> None:
        question = Turn(new_id(), parent, "user", text)
        fitted = self._fit(parent, question) if self.pair is not None else None
        self.saved.add(question)
        if fitted is None:
            self.waiting = question
        else:
            self._begin(question.id, fitted)

    def _answer(self, question: Turn) -> None:
        fitted = self._fit(question.id)
        self.conversation.head = question.id
        self._begin(question.id, fitted)

    def _fit(
        self, head: str | None, question: Turn | None = None, n_continued: int = 0
    ) -> FittedMessages:
        """What the model is given of the branch up to `head`, and of a question behind it."""
        n_ctx = self._require_model().n_ctx
        turns = self.conversation.path(head) if head is not None else []
        messages = self.conversation.messages(head)
        if question is not None:
            turns.append(question)
            messages.append({"role": "user", "content": question.text})
        ids = [turn.id for turn in turns]
        oldest = self._oldest
        fitted = fit(
            messages,
            lambda some: self._engine.count_tokens(some) or 0,
            n_ctx,
            room=answer_room(n_ctx, self.settings.options.max_tokens),
            n_continued=n_continued,
            first=ids.index(oldest) if oldest in ids else 0,
        )
        self._oldest = ids[fitted.first] if fitted.first else None
        return fitted

    def _begin(
        self, parent: str | None, fitted: FittedMessages, before: Turn | None = None
    ) -> None:
        model = self._require_model().target_path.name
        turn = before or Turn(new_id(), parent, "assistant", "", model=model)
        options: dict[str, Any] = dict(self.settings.answering)
        if self.settings.view != "off":
            options["n_alternatives"] = _N_ALTERNATIVES
        notes = (fitted.notice,) if fitted.notice is not None else ()
        self.live = LiveAnswer(turn, before, self._clock(), notes)
        self.figures = self.live.figures
        continued = before.token_ids if before is not None else ()
        self._engine.generate(Generate(turn.id, fitted.messages, options, continued))

    def _take(self, reply: Reply) -> list[Mark]:
        if isinstance(reply, Loading):
            self.loading = reply.words
            self.download = None
        elif isinstance(reply, Downloading):
            self.download = reply
        elif isinstance(reply, LoadedPair):
            self.pair = reply
            self.loading = self.download = self.failure = None
            self._answer_waiting()
        elif reply.id is None:
            self.failure = reply.error
            self.loading = self.download = self.waiting = None
        elif self.live is not None and reply.id == self.live.turn.id:
            return self._take_into(self.live, reply)
        return []

    def _take_into(
        self, live: LiveAnswer, reply: AnswerStarted | AnswerEvent | Failed
    ) -> list[Mark]:
        if isinstance(reply, Failed):  # what was made before is kept
            self.live = None
            if live.rounds:
                self._finish(live, "interrupted")
        elif isinstance(reply, AnswerStarted):
            if live.before is None:
                live.turn = replace(live.turn, opened=reply.opens_thinking)
        elif isinstance(reply.event, Prefill):
            live.prompt_done, live.prompt_total = reply.event.done, reply.event.total
        elif isinstance(reply.event, Finished):
            self._complete(live, reply.event)
        else:
            return live.add(reply.event, self._clock())
        return []

    def _answer_waiting(self) -> None:
        question, self.waiting = self.waiting, None
        if question is not None:
            try:
                self._answer(question)
            except LocalspecError as error:
                self.failure = str(error)

    def _complete(self, live: LiveAnswer, finished: Finished) -> None:
        stats = finished.stats
        live.figures.n_tokens = stats.predicted_n  # without the token that ended the answer
        timings: dict[str, Any] = {
            **stats.timings(),
            "drafter": stats.drafter,
            "verifier": stats.verifier,
            "seed": stats.seed,
        }
        ids = (live.before.token_ids if live.before else ()) + finished.token_ids
        self._finish(live, finished.reason, timings, stats.notes, ids)

    def _finish(
        self,
        live: LiveAnswer,
        reason: str,
        timings: dict[str, Any] | None = None,
        notes: tuple[str, ...] = (),
        token_ids: tuple[int, ...] | None = None,
    ) -> None:
        self.live = None
        if not live.text and reason in ("cancelled", "interrupted"):
            return  # stopped before the first word: nothing to keep
        before = live.before.rounds if live.before else ()
        self.saved.add(
            replace(
                live.turn,
                text=live.text,
                token_ids=live.committed_ids() if token_ids is None else token_ids,
                reason=reason,
                timings=timings or {},
                rounds=(*before, *live.rounds),
                thinking_s=live.thought_s(self._clock()),
                notes=(*live.notes, *notes),
            )
        )

    def _save_growth(self, live: LiveAnswer) -> None:
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

    def _require_model(self) -> LoadedPair:
        if self.pair is None:
            raise InvalidOptionError(f"no model is loaded: {self.failure or 'use /model'}")
        return self.pair
