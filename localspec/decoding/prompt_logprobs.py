"""Log-probabilities of the tokens of a prompt, read from its beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localspec.decoding.logprobs import LogprobReader, TokenLogprob
from localspec.llama.context import Context
from localspec.sampling.raw_law import RawLaw

__all__ = ["read_prompt"]


def read_prompt(
    target: Context, ids: Sequence[int], reader: LogprobReader
) -> Iterator[list[TokenLogprob]]:
    """What is known after each piece of `target.max_rows` tokens; the last is the whole prompt.

    The target is cleared, and holds all but the last token in the end. Nothing precedes the first
    token, whose logprob is None. Raises EngineError and Cancelled as decoding does.
    """
    found = [TokenLogprob(ids[0], target.model.vocabulary.piece(ids[0]), None, (), "prompt")]
    target.clear()
    for start in range(0, len(ids) - 1, target.max_rows):
        piece = ids[start : min(start + target.max_rows, len(ids) - 1)]
        for i, row in enumerate(target.decode(piece, n_rows=len(piece)), start + 1):
            found.append(reader.read(ids[i], RawLaw(row), None, "prompt"))
        yield found
    yield found
