"""A model's vocabulary: text to token ids and back, bytes at the boundary.

Knows nothing of weights or contexts. Pieces are bytes: a character may span tokens.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

from localspec.errors import EngineError, InvalidOptionError

__all__ = ["Vocabulary"]

_VOCAB_SPM = 1  # LLAMA_VOCAB_TYPE_SPM
_ATTR_CONTROL = 1 << 3  # LLAMA_TOKEN_ATTR_CONTROL
_ATTR_USER_DEFINED = 1 << 4  # LLAMA_TOKEN_ATTR_USER_DEFINED
_ATTR_BYTE = 1 << 5  # LLAMA_TOKEN_ATTR_BYTE
_MARKER_ENDS = (("<", ">"), ("[", "]"))
_LONGEST_PIECE = 24  # bytes; of the pieces that forced text is spelled with


class Vocabulary:
    """Belongs to a Model, and lives as long as it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.n_tokens = int(llama_cpp.llama_vocab_n_tokens(handle))
        self._pieces: dict[int, bytes] = {}

    @property
    def handle(self) -> Any:
        """The native pointer, for localspec.llama alone."""
        return self._vocab

    @property
    def _vocab(self) -> Any:
        if self._handle is None:
            raise EngineError("this model was closed")
        return self._handle

    def close(self) -> None:
        """The model is about to be freed: from now on every native question is an EngineError."""
        self._handle = None

    @functools.cached_property
    def bos(self) -> int | None:
        """The begin-of-sequence id where the model wants one put first, else None."""
        token = int(llama_cpp.llama_vocab_bos(self._vocab))
        return token if token >= 0 and llama_cpp.llama_vocab_get_add_bos(self._vocab) else None

    @property
    def bos_text(self) -> str:
        """How the begin-of-sequence token is spelled, for chat templates."""
        return self._text_of(int(llama_cpp.llama_vocab_bos(self._vocab)))

    @property
    def eos_text(self) -> str:
        """How the end-of-sequence token is spelled, for chat templates."""
        return self._text_of(int(llama_cpp.llama_vocab_eos(self._vocab)))

    def is_eog(self, token: int) -> bool:
        """True for every token that ends a generation, not the one EOS id alone."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    @functools.cached_property
    def eog_ids(self) -> tuple[int, ...]:
        """Every token that ends a generation, ascending."""
        return tuple(token for token in range(self.n_tokens) if self.is_eog(token))

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the text; control tokens add none."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._to_piece(token, special=False)
        return found

    def spelled(self, token: int) -> bytes:
        """The bytes of a token, control tokens by their names."""
        return self._to_piece(token, special=True)

    def label(self, token: int) -> str:
        """How to show a token to a person, control tokens by their names."""
        return self.spelled(token).decode("utf-8", "replace")

    def tokenize(
        self,
        text: str,
        *,
        parse_special: bool = False,
        add_bos: bool = True,
        cut_markers: bool = True,
    ) -> list[int]:
        """Token ids of `text`, with one BOS in front where the model wants it.

        With parse_special False (text from users) control tokens are never made, nor markers
        that the vocabulary calls user-defined; cut_markers False lets llama.cpp make those, as
        its own tools do. Raises EngineError for a vocabulary that cannot spell arbitrary text.
        """
        self._require_spelling()
        whole = parse_special or not cut_markers
        parts = [text] if whole else self._without_markers(text)
        ids: list[int] = []
        for part in parts:
            ids += self._tokenize(part, parse_special)
        if add_bos and self.bos is not None and ids[:1] != [self.bos]:
            ids.insert(0, self.bos)
        return ids

    def spell(self, text: bytes) -> list[int]:
        """Tokens whose pieces join to exactly `text`, as the model would divide it; or none.

        Bytes at its end that are no whole character are left out.
        """
        whole = text.decode("utf-8", "ignore")
        if not whole or not self._spells_any_text:
            return []
        ids = self.tokenize(whole, add_bos=False, cut_markers=False)
        raw = whole.encode()
        if b"".join(self.piece(token) for token in ids) == raw:
            return ids
        return self._spell_greedily(raw)

    def special_token(self, text: str) -> int | None:
        """The id of the control or marker token that is spelled exactly `text`."""
        return self.markers.get(text)

    def require_known(self, ids: Sequence[int], what: str) -> None:
        """Raise InvalidOptionError when an id is outside 0 … n_tokens − 1."""
        for token in ids:
            if not 0 <= token < self.n_tokens:
                raise InvalidOptionError(
                    f"{what} holds token id {token}, but this vocabulary has ids 0 to "
                    f"{self.n_tokens - 1}"
                )

    @functools.cached_property
    def markers(self) -> dict[str, int]:
        """Control tokens, and user-defined ones in angle or square brackets, by their text."""
        found: dict[str, int] = {}
        for token in range(self.n_tokens):
            attr = int(llama_cpp.llama_vocab_get_attr(self._vocab, token))
            if not attr & (_ATTR_CONTROL | _ATTR_USER_DEFINED):
                continue
            text = self._text_of(token)
            bracketed = any(text.startswith(a) and text.endswith(b) for a, b in _MARKER_ENDS)
            if len(text) > 1 and (attr & _ATTR_CONTROL or bracketed):
                found[text] = token
        return found

    def split_markers(self, text: str) -> list[str]:
        """Cut `text` inside every marker it holds, so that no part spells one.

        "".join of the parts is `text`.
        """
        starts = sorted(
            start + 1
            for marker in self.markers
            if marker in text
            for start in _occurrences(text, marker)
        )
        cuts = [0, *starts, len(text)]
        return [text[a:b] for a, b in itertools.pairwise(cuts) if a < b]

    @functools.cached_property
    def grammar_tokenizer(self) -> Any:
        """llguidance's view of the vocabulary, made once: 0.7 s for 152,000 tokens.

        Control tokens and markers are no text in it: a grammar must name them, as `<|im_end|>` or
        `<[42]>`.
        """
        import llguidance

        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_GrammarTokens(self)),
            eos_token=list(self.eog_ids) or [self.n_tokens],
            slices=llguidance.LLTokenizer.json_slices(),
        )

    def _spell_greedily(self, text: bytes) -> list[int]:
        """The longest piece that fits, again and again, where a tokenizer adds a space in front."""
        ids: list[int] = []
        at = 0
        while at < len(text):
            for n in range(min(_LONGEST_PIECE, len(text) - at), 0, -1):
                token = self._by_piece.get(text[at : at + n])
                if token is not None:
                    ids.append(token)
                    at += n
                    break
            else:
                return ids
        return ids

    @functools.cached_property
    def _by_piece(self) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for token in range(self.n_tokens):
            piece = self.piece(token)
            if 0 < len(piece) <= _LONGEST_PIECE:
                found.setdefault(piece, token)
        return found

    def _text_of(self, token: int) -> str:
        if token < 0:
            return ""
        found = llama_cpp.llama_vocab_get_text(self._vocab, token) or b""
        return str(found.decode("utf-8", "replace"))

    def _without_markers(self, text: str) -> list[str]:
        if "<" not in text and "[" not in text:
            return [text]
        return self.split_markers(text) or [text]

    def _tokenize(self, text: str, parse_special: bool) -> list[int]:
        raw = text.encode("utf-8", "surrogatepass")
        capacity = len(raw) + 8
        while True:
            buffer = (llama_cpp.llama_token * capacity)()
            n = int(
                llama_cpp.llama_tokenize(
                    self._vocab, raw, len(raw), buffer, capacity, False, parse_special
                )
            )
            if n >= 0:
                return [int(token) for token in np.frombuffer(buffer, np.int32, n)]
            if n == -(2**31) or -n <= capacity:
                raise EngineError(f"a text of {len(raw):,} bytes could not be tokenised")
            capacity = -n

    def _to_piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = int(llama_cpp.llama_token_to_piece(self._vocab, token, buffer, size, 0, special))
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def _require_spelling(self) -> None:
        if not self._spells_any_text:
            raise EngineError(
                "this model's SentencePiece vocabulary has no token for some bytes, so llama.cpp "
                "cannot tokenise text for it: pass token ids instead"
            )

    @functools.cached_property
    def _spells_any_text(self) -> bool:
        """llama_tokenize throws in C++ on an SPM vocabulary that lacks the token of a byte."""
        if int(llama_cpp.llama_vocab_type(self._vocab)) != _VOCAB_SPM:
            return True
        missing = {f"<0x{byte:02X}>" for byte in range(256)}
        for token in range(self.n_tokens):
            if int(llama_cpp.llama_vocab_get_attr(self._vocab, token)) & _ATTR_BYTE:
                missing.discard(self._text_of(token))
                if not missing:
                    return True
        return False


class _GrammarTokens:
    """What llguidance asks of a tokenizer; it never divides a text here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = {*vocabulary.eog_ids, *vocabulary.markers.values()}
        self.tokens: list[bytes] = []
        for token in range(vocabulary.n_tokens):
            piece = vocabulary.piece(token)
            if not piece or token in special:
                special.add(token)
                piece = b"\xff" + vocabulary.spelled(token)  # how llguidance marks them
            self.tokens.append(piece)
        if not vocabulary.eog_ids:  # llguidance needs an end: one that no row of logits has
            special.add(vocabulary.n_tokens)
            self.tokens.append(b"\xff<end>")
        self.special_token_ids = sorted(special)
        self.bos_token_id = None
        self.eos_token_id = min(vocabulary.eog_ids, default=vocabulary.n_tokens)

    def __call__(self, text: bytes) -> list[int]:
        return []


def _occurrences(text: str, marker: str) -> list[int]:
    found, start = [], text.find(marker)
    while start >= 0:
        found.append(start)
        start = text.find(marker, start + 1)
    return found
