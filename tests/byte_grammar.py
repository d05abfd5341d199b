"""Grammars followed byte by byte, with no model: a vocabulary of the 256 bytes and a few marks."""

from __future__ import annotations

import functools
from typing import Any

import llguidance

from localspec.sampling.structured import AnswerGrammar, Matcher

END, START, TURN = 256, 257, 258


class _Bytes:
    def __init__(self) -> None:
        self.tokens = [bytes([i]) for i in range(256)]
        self.tokens += [b"\xff<|end|>", b"\xff<|start|>", b"\xff<|turn|>"]
        self.special_token_ids = [END, START, TURN]
        self.eos_token_id, self.bos_token_id = END, None

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@functools.cache
def byte_tokenizer() -> Any:
    """END and TURN end an answer."""
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), eos_token=[END, TURN])


def matcher(grammar: AnswerGrammar | None) -> Matcher:
    assert grammar is not None
    return Matcher(grammar, byte_tokenizer())


def takes(grammar: AnswerGrammar | None, text: str | bytes) -> bool:
    """Whether the text is a whole sentence of the grammar."""
    tokens = list(text.encode() if isinstance(text, str) else text)
    here = matcher(grammar)
    return here.consume(tokens) == len(tokens) and here.may_end
