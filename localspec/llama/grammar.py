"""llama.cpp's grammar sampler: which tokens of a vocabulary a GBNF grammar allows, state by state.

Three facts rule this file. The time of a question grows with the tokens asked about; so `allows`
asks about those given, and `allowed` first asks which bytes may come next and then about the tokens
that begin with one of them: a token is allowed only if its first byte alone is.
llama_sampler_accept of a token that the grammar forbids ends the process; so `after` asks first.
And llama.cpp takes malformed UTF-8 for characters, which no decoder does; so a state knows which
bytes of a character are missing, and allows no token that would make malformed text. A grammar
that names tokens is left alone: its tokens need not be text.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError, InvalidOptionError
from localspec.grammar.gbnf import Checked
from localspec.grammar.utf8 import REFUSED, WHOLE, transitions
from localspec.llama.native import last_error
from localspec.llama.vocabulary import Vocabulary

__all__ = ["Grammar", "GrammarState"]

Ids = npt.NDArray[np.int32]

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_MANY = 512  # tokens with one first byte that are told apart by their second one
_ASCII = 0x80


class Grammar:
    """A grammar over one vocabulary. `start` is the state before the first token.

    Raises InvalidOptionError when llama.cpp refuses it, such as for a token that is none.
    """

    def __init__(self, vocabulary: Vocabulary, checked: Checked) -> None:
        last_error()
        handle = llama_cpp.llama_sampler_init_grammar(
            vocabulary.handle, checked.text.encode(), b"root"
        )
        if not handle:
            reason = last_error() or "it names a token that this vocabulary does not have"
            raise InvalidOptionError(f"llama.cpp refuses the grammar: {reason}")
        self.start = GrammarState(_Spelling.of(vocabulary), checked, handle)


class GrammarState:
    """What may follow the tokens so far; it never changes. A Mask.

    character: which bytes are missing of the last character, as in localspec.grammar.utf8.
    """

    def __init__(
        self, spelling: _Spelling, checked: Checked, handle: Any, character: int = WHOLE
    ) -> None:
        self._spelling = spelling
        self._checked = checked
        self._handle = handle
        self._character = character

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_sampler_free(handle)

    def allows(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """For each of `ids`, int32, shape (n,), whether it may come next."""
        if not len(ids):
            return np.zeros(0, np.bool_)
        found = self._ask(ids)
        if not self._checked.has_tokens:  # a control token would pass as the letters of its name
            found &= ~self._spelling.silent[ids]
        return found

    def allowed(self) -> Ids:
        """Every id that may come next, int32, ascending."""
        return self._allowed

    @functools.cached_property
    def may_end(self) -> bool:
        """True when the text so far is complete, whether or not it could go on."""
        return bool(self.allows(self._spelling.eog).any())

    @functools.cached_property
    def must_end(self) -> bool:
        """True when nothing but the end may follow."""
        if not self.may_end or self._byte_answers.any():
            return False
        return bool(np.isin(self._allowed, self._spelling.eog).all())

    def after(self, token: int) -> GrammarState | None:
        """The state behind one more token; None when it may not come next."""
        if not self.allows(np.array([token], np.int32))[0]:
            return None
        handle = llama_cpp.llama_sampler_clone(self._handle)
        if not handle:
            raise EngineError("llama.cpp could not copy the state of the grammar")
        llama_cpp.llama_sampler_accept(handle, token)
        character = WHOLE
        if not self._checked.has_tokens:
            character = int(self._spelling.following[self._character, token])
        return GrammarState(self._spelling, self._checked, handle, character)

    def forced_bytes(self, most: int) -> bytes:
        """The bytes that must come next whatever is chosen, `most` of them at most."""
        found = bytearray()
        state = self
        while len(found) < most:
            byte = state._only_byte()
            if byte is None:
                break
            following = state.after(int(self._spelling.byte_tokens[byte]))
            if following is None:
                break
            found.append(byte)
            state = following
        return bytes(found)

    def _ask(self, ids: Ids) -> npt.NDArray[np.bool_]:
        candidates = np.zeros(len(ids), _CANDIDATE)
        candidates["id"] = ids
        array = llama_cpp.llama_token_data_array()
        array.data = ctypes.cast(candidates.ctypes.data, llama_cpp.llama_token_data_p)
        array.size = len(ids)
        array.selected = -1
        array.sorted = False
        llama_cpp.llama_sampler_apply(self._handle, ctypes.byref(array))
        found: npt.NDArray[np.bool_] = candidates["logit"] == 0.0
        if not self._checked.has_tokens:
            found &= self._spelling.following[self._character, ids] != REFUSED
        return found

    @functools.cached_property
    def _byte_answers(self) -> npt.NDArray[np.bool_]:
        """Shape (256,): whether the token that is exactly that byte is allowed."""
        found = np.zeros(256, np.bool_)
        known = np.flatnonzero(self._spelling.byte_tokens >= 0)
        if len(known):
            found[known] = self._ask(self._spelling.byte_tokens[known])
        return found

    @functools.cached_property
    def _open_bytes(self) -> npt.NDArray[np.bool_]:
        """Shape (256,): bytes with which an allowed token may begin."""
        if self._checked.has_tokens:
            return np.ones(256, np.bool_)
        unknown = self._spelling.byte_tokens < 0
        if self._checked.excludes_beyond_ascii:
            unknown = unknown | (np.arange(256) >= _ASCII)
        return np.asarray((self._byte_answers | unknown) & self._spelling.begins)

    def _only_byte(self) -> int | None:
        """The one byte that may come next; None where there are more, or the end may come."""
        found = np.flatnonzero(self._open_bytes)
        if len(found) != 1 or self._spelling.byte_tokens[found[0]] < 0:
            return None
        if self._checked.excludes_beyond_ascii and found[0] >= _ASCII:
            return None
        return None if self.may_end else int(found[0])

    @functools.cached_property
    def _allowed(self) -> Ids:
        spelling = self._spelling
        if self._checked.has_tokens:
            every = np.arange(spelling.n_tokens, dtype=np.int32)
            return every[self.allows(every)]
        parts = [spelling.eog]
        for byte in np.flatnonzero(self._open_bytes):
            group = spelling.by_byte[byte]
            parts += self._narrowed(int(byte)) if len(group) > _MANY else [group]
        ids = np.unique(np.concatenate(parts))
        return ids[self.allows(ids)]

    def _narrowed(self, byte: int) -> list[Ids]:
        """The tokens behind a byte, without those whose first two bytes are ruled out."""
        pairs = self._spelling.pairs(byte)
        sure = pairs.probes >= 0
        if self._checked.excludes_beyond_ascii:
            sure &= (pairs.seconds < _ASCII) & (byte < _ASCII)
        keep = ~sure
        keep[sure] = self._ask(pairs.probes[sure]) if sure.any() else False
        return [pairs.groups[i] for i in np.flatnonzero(keep)]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Tokens with one first byte, grouped by the second (256 stands for none).

    probes: the token that is exactly the two bytes, -1 where there is none.
    """

    seconds: Ids
    probes: Ids
    groups: list[Ids]


class _Spelling:
    """A vocabulary sorted by how its tokens begin. Made once for each.

    byte_tokens: int32, shape (256,), the token that is exactly that byte, or -1. by_byte: ids by
    first byte. begins: whether any does. silent: control tokens that add nothing to the text.
    eog: the ids that end an answer. following: as transitions() of the pieces; an end is refused
    within a character.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.n_tokens = vocabulary.n_tokens
        self.eog = np.array(vocabulary.eog_ids, np.int32)
        self._pieces = [vocabulary.piece(token) for token in range(self.n_tokens)]
        firsts = np.array([piece[0] if piece else 256 for piece in self._pieces], np.int32)
        firsts[self.eog] = 256
        order = np.argsort(firsts, kind="stable").astype(np.int32)
        edges = np.searchsorted(firsts[order], np.arange(258))
        self.by_byte = [order[edges[b] : edges[b + 1]] for b in range(256)]
        self.begins = np.array([len(group) > 0 for group in self.by_byte])
        self.byte_tokens = np.full(256, -1, np.int32)
        for byte, group in enumerate(self.by_byte):
            for token in group:
                if len(self._pieces[token]) == 1:
                    self.byte_tokens[byte] = token
                    break
        self.silent = np.array([not piece for piece in self._pieces])
        self.silent[self.eog] = False
        self.following = transitions(self._pieces)
        self.following[:, self.eog] = REFUSED
        self.following[WHOLE, self.eog] = WHOLE
        self._pairs: dict[int, _Pairs] = {}

    @staticmethod
    def of(vocabulary: Vocabulary) -> _Spelling:
        """The one of this vocabulary."""
        if vocabulary.spelling is None:
            vocabulary.spelling = _Spelling(vocabulary)
        found: _Spelling = vocabulary.spelling
        return found

    def pairs(self, byte: int) -> _Pairs:
        """The tokens that begin with a byte, by their second one."""
        found = self._pairs.get(byte)
        if found is None:
            groups: dict[int, list[int]] = {}
            probes: dict[int, int] = {}
            for token in self.by_byte[byte].tolist():
                piece = self._pieces[token]
                second = piece[1] if len(piece) > 1 else 256
                groups.setdefault(second, []).append(token)
                if len(piece) == 2:
                    probes.setdefault(second, token)
            seconds = sorted(groups)
            found = self._pairs[byte] = _Pairs(
                np.array(seconds, np.int32),
                np.array([probes.get(second, -1) for second in seconds], np.int32),
                [np.array(groups[second], np.int32) for second in seconds],
            )
        return found
