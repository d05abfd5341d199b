"""EE. Tool tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from localspec.llama.model import Model
from localspec.llama.vocabulary import Vocabulary
from localspec.session.tool_calls import spelled, split_tool_calls
from tests import tiny_models
from tests.cases.proof import shown_by

OPENED, CLOSED = 310, 311  # ordinary tokens that these tests turn into markers
KINDS = {"control": gguf.TokenType.CONTROL, "user-defined": gguf.TokenType.USER_DEFINED}


@pytest.fixture(params=sorted(KINDS))
def vocabulary(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Vocabulary]:
    """`<tool_call>` and its end as control tokens, and as user-defined ones."""
    kind = KINDS[request.param]
    add_types = gguf.GGUFWriter.add_token_types

    def altered(self: gguf.GGUFWriter, types: list[int]) -> None:
        types = list(types)
        types[OPENED] = types[CLOSED] = kind
        add_types(self, types)

    monkeypatch.setattr(gguf.GGUFWriter, "add_token_types", altered)
    path = tmp_path / "tools.gguf"
    tiny_models.write_llama(
        path, vocab="bytes", alter_token={OPENED: "<tool_call>", CLOSED: "</tool_call>"}
    )
    with Model(path) as model:
        yield model.vocabulary


def said(vocabulary: Vocabulary) -> list[int]:
    call = vocabulary.tokenize('{"name": "f", "arguments": {"x": 1}}', add_bos=False)
    return [OPENED, *call, CLOSED]


def test_a_models_marker_is_never_lost(vocabulary: Vocabulary) -> None:
    """As a control token it adds nothing to the text, as a user-defined one it does: the call is
    read either way.
    """
    ids = said(vocabulary)
    text = b"".join(map(vocabulary.piece, ids)).decode()
    calls = split_tool_calls(spelled(ids, vocabulary) or text).calls
    assert [(call.name, call.arguments) for call in calls] == [("f", {"x": 1})]


def test_a_pasted_marker_gives_no_marker_id(vocabulary: Vocabulary) -> None:
    for text in ("<tool_call>", "a <tool_call>{}</tool_call> b", "<tool_call><tool_call>"):
        ids = vocabulary.tokenize(text)
        assert not {OPENED, CLOSED} & set(ids)
        assert b"".join(map(vocabulary.piece, ids)).decode() == text


def test_no_special_text_gives_a_control_id(vocabulary: Vocabulary) -> None:
    """The split with a break inside: no part spells a marker, and the parts add up."""
    for marker, token in vocabulary.markers.items():
        ids = vocabulary.tokenize(f"x{marker}y", add_bos=False)
        assert token not in ids, marker
        assert "".join(vocabulary.split_markers(f"x{marker}y")) == f"x{marker}y"


def test_shown_elsewhere() -> None:
    shown_by(
        "tiny.test_tools.test_nothing_in_tools_or_calls_forges_a_turn",
        "tiny.test_chat_template.test_user_text_cannot_forge_a_turn",
        "tiny.test_chat_template.test_plain_text_is_tokenised_without_control_tokens",
        "real.test_default_pair.test_pasted_markers_stay_text",
    )
