"""How far a batch is: a bar on stderr, a function of the caller, or nothing."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from localspec.errors import (
    BusyError,
    CancelledError,
    InvalidOptionError,
    LocalspecError,
    ResultsFileError,
)
from localspec.sampling.seeds import resolve_seed
from localspec.session.batch_results import Answered, ResultsFile
from localspec.session.completion import Completion

__all__ = ["Asker", "Progress", "complete_many", "progress_bar", "seed_of"]


class Progress:
    """Counts, and tells `show(done, total)`; total None while nobody knows it."""

    def __init__(self, show: Callable[[int, int | None], None], total: int | None) -> None:
        self._show = show
        self._total = total
        self._n_done = 0

    def advance(self) -> None:
        """One more prompt has its answer or its error."""
        self._n_done += 1
        self._show(self._n_done, self._total)


@contextlib.contextmanager
def progress_bar(
    wanted: bool | Callable[[int, int | None], None], total: int | None
) -> Iterator[Progress]:
    """wanted True draws a bar with rich, in a terminal or a notebook; a function is called."""
    if callable(wanted):
        yield Progress(wanted, total)
        return
    if not wanted:
        yield Progress(lambda done, total: None, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("", total=total)
        yield Progress(lambda done, _total: bars.update(task, completed=done), total)


Item: TypeAlias = Any


class Asker(Protocol):
    """What is needed of a session."""

    @property
    def n_batch(self) -> int: ...

    def encode(self, prompt: Any) -> list[int]: ...
    def complete(self, prompt: Any, **options: Any) -> Completion: ...
    def begin_alike(self, ids: Sequence[int], n_shared: int) -> None: ...


@dataclass(slots=True)
class _Asked:
    index: int
    id: str
    prompt: Any
    ids: list[int]
    error: LocalspecError | None
    digest: str


def complete_many(
    asker: Asker,
    prompts: Iterable[Item],
    *,
    options: Mapping[str, Any],
    seed: int | None,
    described: Mapping[str, Any],
    out: str | Path | None,
    progress: bool | Callable[[int, int | None], None],
    retry_errors: bool,
) -> list[Answered]:
    """See Session.complete_many. described: options and models, as the file remembers them."""
    total = len(prompts) if isinstance(prompts, Sequence) else None
    if isinstance(prompts, (str, bytes, Mapping)):
        raise InvalidOptionError("complete_many takes a list of prompts, not one prompt")
    opened: AbstractContextManager[ResultsFile | None] = nullcontext()
    if out is not None:
        opened = ResultsFile(Path(out), described, seed, retry_errors=retry_errors)
    with opened as file, progress_bar(progress, total) as shown:
        base = file.seed if file is not None else resolve_seed(seed)
        done = dict(file.done) if file is not None else {}
        if total is not None and done and max(done) >= total:
            raise ResultsFileError(
                f"{out} holds a result for prompt {max(done)}, but only {total} prompts were "
                "given: name another file"
            )
        batch = _Batch(asker, dict(options), base, file, shown, done)
        return batch.run(prompts, may_group=total is not None)


def seed_of(base: int, index: int) -> int:
    """The seed of prompt `index`: 63 bits of SHA-256, the same on every machine."""
    digest = hashlib.sha256(f"{base}:{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class _Batch:
    def __init__(
        self,
        asker: Asker,
        options: dict[str, Any],
        seed: int,
        file: ResultsFile | None,
        shown: Progress,
        done: dict[int, Answered],
    ) -> None:
        self._asker = asker
        self._options = options
        self._seed = seed
        self._file = file
        self._shown = shown
        self._done = done
        self._before: list[int] = []  # the prompt that was evaluated last
        self._names: set[str] = set()

    def run(self, prompts: Iterable[Item], *, may_group: bool) -> list[Answered]:
        """Answers in the order of the prompts, whatever the order of work."""
        asked: Iterable[_Asked] = self._asked(prompts)
        if may_group:
            asked = sorted(asked, key=self._group)
        for one in asked:
            if one.index not in self._done:
                self._answer(one)
            self._shown.advance()
        if self._file is not None:
            self._file.sort()
        return [self._done[index] for index in sorted(self._done)]

    def _asked(self, prompts: Iterable[Item]) -> Iterator[_Asked]:
        for index, item in enumerate(prompts):
            one = _one(self._asker, index, item)
            if one.id in self._names:
                raise InvalidOptionError(f"two prompts have the id {one.id!r}: give each its own")
            self._names.add(one.id)
            known = self._done.get(index)
            if known is not None and (known.id, known.prompt_sha256) != (one.id, one.digest):
                raise ResultsFileError(
                    f"prompt {index} (id {one.id!r}) is not the one that the file has a result "
                    f"for (id {known.id!r}): give the same prompts in the same order, or name "
                    "another file"
                )
            yield one

    def _group(self, one: _Asked) -> list[int]:
        """Prompts that share whole prefill batches come one after the other."""
        return one.ids[: self._n_whole(one.ids)]

    def _n_whole(self, ids: Sequence[int]) -> int:
        n_batch = self._asker.n_batch
        return max(0, len(ids) - 1) // n_batch * n_batch

    def _answer(self, one: _Asked) -> None:
        seed = seed_of(self._seed, one.index)
        try:
            if one.error is not None:
                raise one.error
            self._asker.begin_alike(one.ids, self._n_shared(one.ids))
            self._before = []
            result = self._asker.complete(one.ids, **self._options, seed=seed)
            self._before = one.ids
        except (BusyError, CancelledError):
            raise
        except LocalspecError as error:
            answered = Answered.failed(one.index, one.id, one.digest, seed, error)
        else:
            if result.reason == "cancelled":
                n = len(self._done)
                where = " The same call goes on from there" if self._file is not None else ""
                raise CancelledError(f"cancelled after {n} answers.{where}")
            answered = Answered.of(one.index, one.id, one.digest, result)
        if self._file is not None:
            self._file.add(answered)
        self._done[one.index] = answered

    def _n_shared(self, ids: Sequence[int]) -> int:
        n = min(self._n_whole(self._before), self._n_whole(ids))
        while n and self._before[:n] != ids[:n]:
            n -= self._asker.n_batch
        return n


def _one(asker: Asker, index: int, item: Item) -> _Asked:
    name, prompt = str(index), item
    if isinstance(item, Mapping):
        if ("prompt" in item) == ("messages" in item):
            raise InvalidOptionError(
                f'prompt {index} is a dict: give {{"prompt": …}} or {{"messages": …}}, and an '
                '"id" if you like'
            )
        prompt = item["prompt"] if "prompt" in item else item["messages"]
        name = str(item.get("id", index))
    try:
        ids, error = asker.encode(prompt), None
        digest = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
    except (BusyError, CancelledError):
        raise
    except LocalspecError as failure:
        ids, error = [], failure
        digest = hashlib.sha256(repr(prompt).encode("utf-8", "surrogatepass")).hexdigest()
    return _Asked(index, name, prompt, ids, error, digest)
