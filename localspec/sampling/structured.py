"""What an answer must follow, from the options that can say so, and llguidance's matcher for it.

Whatever is given becomes one grammar in llguidance's Lark. Without a model it is only compiled, so
that mistakes are told when options are made. llguidance is imported when first needed.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError, InvalidOptionError
from localspec.sampling.gbnf_to_lark import gbnf_to_lark
from localspec.sampling.json_schema import checked, narrowed, read_schema

__all__ = ["AnswerGrammar", "Matcher", "answer_grammar", "named_tokens"]

_STACK_BYTES = 256 << 20  # llguidance recurses, 16 KiB deep for each schema in a chain of $ref
_MOST_SECONDS = 2
_MAX_RULES = 5_000
_MAX_CHARS = 1_000_000
_FULL_MASKS = '%llguidance {"no_forcing": true}\n'  # else forced text allows one spelling alone
_JSON = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    # without \u, by which a further property could be given the name of a listed one
    "json_allowed_escapes": 'nrtbf"\\',
}
_IS_LARK = re.compile(r"^\s*(%llguidance\b|start\s*:(?!:))", re.MULTILINE)
_LARK_RULE = re.compile(r"^\s*[?!]?[A-Za-z_]\w*[^\S\n]*(\[[^\]\n]*\])?[^\S\n]*:", re.MULTILINE)
_DEAD_END = "NoExtension"  # how the error begins where no token can go on
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
_NAMED_TOKEN = re.compile(r"<\|[^<>|\s]+\|>|<\[[\d,\s-]+\]>")
_STACK_LOCK = threading.Lock()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AnswerGrammar:
    """A grammar that compiles, in Lark, and what a person should know about how it was made."""

    lark: str
    notes: tuple[str, ...] = ()


def answer_grammar(
    json_schema: Any = None, grammar: Any = None, choices: Any = None, regex: Any = None
) -> AnswerGrammar | None:
    """The grammar of whichever is given; None when nothing is.

    Raises InvalidOptionError when two are given, or one cannot be kept.
    """
    given = {"json_schema": json_schema, "grammar": grammar, "choices": choices, "regex": regex}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        return None
    if len(named) > 1:
        raise InvalidOptionError(f"{' and '.join(named)} exclude each other: give one of them")
    name = named[0]
    notes: tuple[str, ...] = ()
    if name == "json_schema":
        lark, notes = _of_schema(json_schema)
    elif name == "choices":
        lark = _of_choices(choices)
    else:
        _require_text(name, given[name])
        lark = _of_regex(regex) if name == "regex" else _of_text(grammar)
    wrong = _compiled(lark)
    if "oneOf constraints" in wrong:
        wrong = "branches of oneOf overlap, or are not seen to differ; anyOf takes any of them"
    if wrong:
        raise InvalidOptionError(f"{name}: {_reason(wrong)}")
    return AnswerGrammar(lark, notes)


def _of_schema(given: Any) -> tuple[str, tuple[str, ...]]:
    try:
        schema, notes = checked(read_schema(given))
        text = json.dumps({**narrowed(schema), "x-guidance": _JSON}, ensure_ascii=False)
    except RecursionError:
        raise InvalidOptionError("json_schema: a $ref leads to a $ref too often") from None
    return f"start: %json {text}\n{_FULL_MASKS}", notes


def _require_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise InvalidOptionError(f"{name} is text, not {type(text).__name__}")
    if name == "grammar" and not text.strip():
        raise InvalidOptionError("the grammar is empty: give GBNF with a rule named root, or Lark")
    if len(text) > _MAX_CHARS:
        raise InvalidOptionError(f"{name} has {len(text):,} characters: the most is {_MAX_CHARS:,}")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidOptionError(f"{name} holds half a surrogate pair, which no token can spell")


def _of_choices(choices: Any) -> str:
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence) or not choices:
        raise InvalidOptionError("choices is a list of texts that is not empty")
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise InvalidOptionError(f"choices holds {choice!r}: each is a text, not empty")
        if "\0" in choice or any("\ud800" <= char <= "\udfff" for char in choice):
            raise InvalidOptionError(f"choices holds {choice!r}, which no token can spell")
    # one lexeme, for llguidance would otherwise take the longest of "a" and "ab" alone
    return f"start: /{'|'.join(map(_quoted, dict.fromkeys(choices)))}/\n{_FULL_MASKS}"


def _quoted(text: str) -> str:
    return "".join(
        char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}" for char in text
    )


def _of_regex(regex: str) -> str:
    from llguidance import regex_to_lark

    body = regex_to_lark(regex, use_ascii="d")  # \\d is 0 to 9
    return f"start: /{body}/\n{_FULL_MASKS}"


@functools.lru_cache(maxsize=64)
def _of_text(text: str) -> str:
    """GBNF or Lark; Lark has a rule `start:` or begins with an instruction."""
    if not _IS_LARK.search(text):
        return gbnf_to_lark(text) + _FULL_MASKS
    if len(_LARK_RULE.findall(text)) > _MAX_RULES:
        raise InvalidOptionError(f"the grammar has more than {_MAX_RULES:,} rules")
    return text if "%llguidance" in text else f"{text}\n{_FULL_MASKS}"


@functools.lru_cache(maxsize=64)
def _compiled(lark: str) -> str:
    """What is wrong with a grammar; an empty text when it compiles."""
    import llguidance

    grammar = llguidance.LLMatcher.grammar_from_lark(lark)
    return _in_deep_thread(lambda: llguidance.LLMatcher.validate_grammar(grammar, limits=_limits()))


def _limits() -> Any:
    """Some 25 ms a step: grammars read by characters and thousands of properties need them."""
    import llguidance

    return llguidance.LLParserLimits(
        step_max_items=500_000, max_items_in_row=20_000, verbose_errors=False
    )


def _in_deep_thread(work: Callable[[], T]) -> T:
    """llguidance recurses natively, and a thread may have a stack of half a megabyte.

    Some grammars take it for ever, such as several long patterns that must all match; it cannot be
    stopped, but it is not waited for.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # a panic in Rust is no Exception
            failed.append(error)

    thread = threading.Thread(target=run, name="grammar", daemon=True)
    try:
        with _STACK_LOCK:
            before = threading.stack_size(_STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
    except RuntimeError:  # too little memory for such a stack
        run()
    else:
        thread.join(_MOST_SECONDS)
        if thread.is_alive():
            raise InvalidOptionError(
                f"the grammar is too complex: it did not compile in {_MOST_SECONDS} seconds"
            )
    if failed:
        raise InvalidOptionError(f"llguidance refuses the grammar: {_reason(failed[0])}")
    return found[0]


def _reason(message: object) -> str:
    """The first line of a message, and the one that says what a regular expression lacks."""
    lines = str(message).strip().split("\n")
    more = [line for line in lines[1:] if line.startswith("error: ")]
    return " ".join([lines[0], *more[:1]])[:400]


def named_tokens(grammar: str) -> list[str]:
    """Tokens that a grammar in GBNF or Lark names outside its literals: `<|name|>` and `<[42]>`."""
    return _NAMED_TOKEN.findall(_LITERAL.sub('""', grammar))


class Matcher:
    """Where an answer stands in its grammar: llguidance's matcher for one vocabulary.

    end_ids: the tokens that end an answer. tokenizer: Vocabulary.grammar_tokenizer. Raises
    InvalidOptionError when the grammar names a token that is none, or cannot be followed by any
    answer or by draft tokens. A grammar that is too complex to follow raises EngineError, here and
    in every method; the matcher is of no use then.
    """

    def __init__(self, grammar: AnswerGrammar, tokenizer: Any) -> None:
        import llguidance

        self._text = llguidance.LLMatcher.grammar_from_lark(grammar.lark)
        self._tokenizer = tokenizer
        self._consumed: list[int] = []
        self._n_tokens = int(tokenizer.vocab_size)
        self.end_ids = frozenset(tokenizer.eos_tokens)
        self._matcher = self._new()
        if self._matcher.is_error():
            raise InvalidOptionError(
                f"llguidance refuses the grammar: {_reason(self._matcher.get_error())}"
            )
        first = np.flatnonzero(self.allowed())
        if not self.may_end and not len(first):
            raise InvalidOptionError("no answer can follow the grammar: it allows no first token")
        self._require_rollback([int(token) for token in first if token not in self.end_ids][:1])

    def _require_rollback(self, tokens: list[int]) -> None:
        """llguidance cannot take back what Lark's `stop=` and `max_tokens=` have counted."""
        try:
            self.rollback(self.consume(tokens))
        except EngineError:
            raise InvalidOptionError(
                "the grammar uses stop= or max_tokens=, which cannot be taken back when draft "
                "tokens are rejected: use the options stop and max_tokens, or bounds such as {1,80}"
            ) from None

    def consume(self, tokens: Sequence[int]) -> int:
        """Go on with the tokens as far as they are allowed; how many those are."""
        n = int(self._told(self._matcher.try_consume_tokens(list(tokens))))
        self._consumed += tokens[:n]
        return n

    def n_valid(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are allowed here; the matcher stays where it is."""
        return int(self._told(self._matcher.validate_tokens(list(tokens))))

    def rollback(self, n: int) -> None:
        """Take back the last n tokens."""
        if n:
            self._told(self._matcher.rollback(n))
            del self._consumed[-n:]

    @property
    def may_end(self) -> bool:
        """Whether the text so far is complete."""
        return self._told(bool(self._matcher.is_accepting()))

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Shape (n_vocab,): the tokens that may come next; those that end an answer when it may.

        None at all where no token of the vocabulary spells what must follow.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error() and self._matcher.get_error().startswith(_DEAD_END):
            self._matcher = self._new()  # else no token could be taken back any more
            self._matcher.try_consume_tokens(self._consumed)
            return np.zeros(self._n_tokens, np.bool_)
        self._told(None)
        return np.unpackbits(bits, count=self._n_tokens, bitorder="little").view(np.bool_)

    def forced_bytes(self) -> bytes:
        """The text that must come next, whatever is chosen."""
        return bytes(self._told(self._matcher.compute_ff_bytes()))

    def _new(self) -> Any:
        import llguidance

        return _in_deep_thread(
            lambda: llguidance.LLMatcher(self._tokenizer, self._text, log_level=0, limits=_limits())
        )

    def _told(self, answer: T) -> T:
        if self._matcher.is_error():
            raise EngineError(f"the grammar is too complex: {_reason(self._matcher.get_error())}")
        return answer
