"""The tree of a chat, its file, its exports, and what is told apart in its text."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chat.attachments import attach, expand
from localspec.chat.conversation import Conversation, Turn, new_notes
from localspec.chat.export import export, to_html, to_json, to_markdown
from localspec.chat.saved import SavedChat, chats_folder, list_chats
from localspec.chat.thinking import opens_thinking, split
from localspec.control.economics import COPIES_ALONE
from localspec.decoding.event_json import as_json, round_from_json
from localspec.errors import AttachmentError, SavedChatError
from localspec.session.marks import figures, mark_all
from tests.scripted_chat import plain, round_of


def talk(*turns: tuple[str, str | None, str, str]) -> Conversation:
    conversation = Conversation()
    for turn_id, parent, role, text in turns:
        conversation.add(Turn(turn_id, parent, role, text))
    return conversation


def test_a_branch_is_read_as_far_as_it_was_read_last() -> None:
    conversation = talk(
        ("q", None, "user", "question"),
        ("a", "q", "assistant", "one"),
        ("f", "a", "user", "further"),
        ("b", "q", "assistant", "two"),
    )
    assert [turn.id for turn in conversation.path()] == ["q", "b"]
    assert conversation.siblings("b") == (1, ["a", "b"])
    assert conversation.branch("b", 1) == "f"
    assert [turn.id for turn in conversation.path()] == ["q", "a", "f"]
    conversation.system = "be brief"
    assert conversation.messages("q") == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "question"},
    ]


def test_a_turn_needs_its_parent_and_the_same_id_replaces_it() -> None:
    conversation = talk(("q", None, "user", "question"))
    with pytest.raises(KeyError, match="unknown parent"):
        conversation.add(Turn("x", "nobody", "user", "lost"))
    conversation.add(Turn("q", None, "user", "better"))
    assert len(conversation) == 1
    assert conversation.path()[0].text == "better"


def saved_chat(folder: Path) -> SavedChat:
    saved = SavedChat(folder, "chat")
    saved.set_system("be kind")
    saved.add(Turn("q", None, "user", "What is 你好 🙂?\nsecond line"))
    rounds = (round_of(0, [" a", " b"], " c", rejected=" x"), plain(1, " d"))
    saved.add(Turn("a", "q", "assistant", " a b c d", (1, 2, 3), "eos", {"predicted_n": 4}, rounds))
    return saved


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    saved = saved_chat(tmp_path)
    saved.close()
    read = SavedChat.open("chat", tmp_path)
    assert read.conversation.turns == saved.conversation.turns
    assert read.conversation.system == "be kind"
    assert read.conversation.head == "a"
    assert read.n_skipped == 0
    [listed] = list_chats(tmp_path)
    assert (listed.id, listed.title) == ("chat", "What is 你好 🙂?")


def test_every_torn_end_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill may leave any prefix of the file; what was whole before it is there."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    saved = saved_chat(tmp_path)
    saved.grow(Turn("b", "q", "assistant", "", model="m"), "half an ", [5, 6])
    saved.grow(Turn("b", "q", "assistant", "", model="m"), "answer", [7])
    saved.close()
    whole = saved.path.read_bytes()
    lines = whole.count(b"\n")
    for end in range(0, len(whole), 7):
        (tmp_path / "cut.jsonl").write_bytes(whole[:end])
        read = SavedChat.open("cut", tmp_path)
        assert len(read.conversation) <= lines
        assert read.n_skipped <= 1
        read.add(Turn("n", read.conversation.head, "user", "after the kill"))
        read.close()
        again = SavedChat.open("cut", tmp_path)
        assert again.conversation.turns["n"].text == "after the kill"
    read = SavedChat.open("chat", tmp_path)
    turn = read.conversation.turns["b"]
    assert (turn.text, turn.token_ids, turn.reason) == ("half an answer", (5, 6, 7), "interrupted")


def test_a_cut_answer_is_no_head_when_the_chat_went_on_elsewhere(tmp_path: Path) -> None:
    saved = saved_chat(tmp_path)
    saved.grow(Turn("b", "q", "assistant", "", model="m"), "half", [5])
    saved.add(Turn("c", "q", "assistant", "whole", (8,), "eos"))
    saved.close()
    read = SavedChat.open("chat", tmp_path).conversation
    assert read.head == "c"
    assert read.turns["b"].text == "half"


def test_a_continuation_that_was_cut_is_kept_behind_what_it_continues(tmp_path: Path) -> None:
    saved = saved_chat(tmp_path)
    answer = saved.conversation.turns["a"]
    saved.grow(answer, " and", [4])
    saved.grow(answer, " more", [5])
    saved.close()
    read = SavedChat.open("chat", tmp_path).conversation.turns["a"]
    assert read.text == " a b c d and more"
    assert read.token_ids == (1, 2, 3, 4, 5)
    assert (read.reason, read.rounds) == ("interrupted", answer.rounds)


def test_pieces_of_two_programs_are_not_mixed(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path, "c")
    saved.add(Turn("q", None, "user", "hello"))
    answer = Turn("a", "q", "assistant", "one", (1,), "length")
    saved.add(answer)
    other = SavedChat.open("c", tmp_path)
    saved.grow(answer, " two", [2], at=3)
    other.grow(answer, " deux", [12], at=3)
    saved.grow(answer, " three", [3], at=7)
    other.grow(answer, " trois", [13], at=8)
    saved.grow(Turn("q", None, "user", "hello"), " forged", [4])
    saved.close()
    other.close()
    read = SavedChat.open("c", tmp_path)
    assert read.conversation.turns["a"].text == "one two three"
    assert read.conversation.turns["a"].token_ids == (1, 2, 3)
    assert read.conversation.turns["q"].text == "hello"
    assert read.n_skipped == 3


def test_nothing_is_written_before_the_first_turn(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path / "chats", "chat")
    saved.set_system("unsaid")
    saved.close()
    assert not (tmp_path / "chats").exists()


def test_a_chat_that_cannot_be_written_goes_on_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    saved = SavedChat(tmp_path / "file", "chat")
    saved.add(Turn("q", None, "user", "question"))
    assert saved.conversation.turns["q"].text == "question"
    assert "no longer saved" in (saved.broken or "")


@pytest.mark.parametrize("chat_id", ["missing", "../evil", "", "a/b"])
def test_a_chat_that_is_not_there_is_a_named_error(tmp_path: Path, chat_id: str) -> None:
    with pytest.raises(SavedChatError):
        SavedChat.open(chat_id, tmp_path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text('{"type": "chat", "version": 99, "id": "new"}\n')
    with pytest.raises(SavedChatError, match="newer localspec"):
        SavedChat.open("new", tmp_path)


def test_marks_add_up_to_the_text_and_wait_for_its_release() -> None:
    euro = "€".encode()
    first = round_of(0, [" costs"], " 5", rejected=" nothing")
    half = plain(1, "")
    tokens = (half.tokens[0].__class__(9, euro[:2], "target", "bonus", 1.0, None, 1.0, None),)
    held = half.__class__(1, 0, 0, tokens, "", 0.0, 0.1, 0.1)
    rest = half.__class__(
        2, 0, 0, (tokens[0].__class__(9, euro[2:], "target", "bonus", 1.0, None, 1.0, None),),
        "€", 0.0, 0.1, 0.1,
    )  # fmt: skip
    marks = mark_all([first, held, rest])
    assert "".join(mark.text for mark in marks if mark.kind != "rejected") == " costs 5€"
    [rejected] = [mark for mark in marks if mark.kind == "rejected"]
    assert (rejected.text, rejected.instead) == (" nothing", " 5")


@pytest.mark.parametrize(
    ("text", "opened", "thinking", "answer", "is_open"),
    [
        ("Hello", False, None, "Hello", False),
        ("<thi", False, None, "", False),
        ("<think>\nhm", False, "hm", "", True),
        ("<think>\nhm\n</think>\n\nYes", False, "hm", "Yes", False),
        ("hm</think>Yes", True, "hm", "Yes", False),
        ("hm", True, "hm", "", True),
        ("a <think> b", False, None, "a <think> b", False),
        ("<think>\n\n</think>\n\nYes", False, "", "Yes", False),
    ],
)
def test_thinking_is_told_from_the_answer(
    text: str, opened: bool, thinking: str | None, answer: str, is_open: bool
) -> None:
    parts = split(text, opened=opened)
    assert (parts.thinking, parts.answer, parts.is_open) == (thinking, answer, is_open)


def test_a_prompt_that_opens_the_thinking() -> None:
    assert opens_thinking("<|im_start|>assistant\n<think>\n")
    assert not opens_thinking("<think>\n\n</think>\n\n")


def test_files_are_attached_with_a_fence_that_holds(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(b"\xef\xbb\xbfone\r\n```py\ncode\n```\r\n")
    attachment = attach(path)
    assert attachment.text.startswith("notes.md:\n````md\none\n```py\n")
    text, found = expand(f"Read @{path} and ask @someone, not a@b.c")
    assert text.startswith("Read notes.md and ask @someone, not a@b.c\n\nnotes.md:")
    assert [a.path for a in found] == [path]
    spaced = tmp_path / "two words.txt"
    spaced.write_text("x")
    assert expand(f'see @"{spaced}"')[0].startswith("see two words.txt")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe", "not UTF-8"), (b"a\0b", "binary file"), (b"x" * 4_000_001, "at most 4 MB")],
)
def test_what_cannot_be_attached_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(AttachmentError, match=words):
        attach(path)
    with pytest.raises(AttachmentError, match="is a folder"):
        attach(tmp_path)
    with pytest.raises(AttachmentError, match="there is no file"):
        attach(tmp_path / "nothing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AttachmentError, match="not a regular file"):
        attach(tmp_path / "pipe")
    assert expand(f"@{tmp_path}/pipe") == (f"@{tmp_path}/pipe", [])


def test_names_that_no_file_can_have_are_no_export(tmp_path: Path) -> None:
    chat = Conversation()
    chat.add(Turn("q", None, "user", "hello"))
    for name in ("a" * 300 + ".md", "nul\0.md", "no/folder.md"):
        with pytest.raises(SavedChatError, match="cannot be written"):
            export(chat, tmp_path / name)


def test_only_what_can_be_opened_is_listed(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path, "mine")
    saved.add(Turn("q", None, "user", "hello"))
    saved.close()
    (tmp_path / "two words.jsonl").write_text(saved.path.read_text())
    (tmp_path / "folder.jsonl").mkdir()
    assert [title.id for title in list_chats(tmp_path)] == ["mine"]


def test_damage_is_told_in_words(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path, "mine")
    saved.add(Turn("q", None, "user", "hello"))
    saved.close()
    assert SavedChat.open("mine", tmp_path).damage is None
    with saved.path.open("a") as file:
        file.write('{"type": "turn"}\n')
    damage = SavedChat.open("mine", tmp_path).damage
    assert damage == f"1 damaged line of {saved.path} left out"


def test_the_data_folder_may_be_told_from_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA", "~/x")
    assert chats_folder() == Path.home() / "x" / "chats"
    monkeypatch.setenv("LOCALSPEC_DATA", "~no-such-person")
    with pytest.raises(SavedChatError, match="LOCALSPEC_DATA"):
        chats_folder()


def test_figures_of_a_file_may_lack_anything() -> None:
    assert "acceptance rate 0%" in figures({"predicted_n": 1, "draft_n_rejected": 3}, "eos")


def test_exports_hold_the_text_and_the_guesses(tmp_path: Path) -> None:
    saved = saved_chat(tmp_path)
    saved.close()
    conversation = saved.conversation
    markdown = to_markdown(conversation)
    assert markdown.startswith("# What is 你好 🙂?\n")
    assert " a b c d".strip() in markdown
    told = json.loads(to_json(conversation))
    assert [message["role"] for message in told["messages"]] == ["system", "user", "assistant"]
    kinds = [mark["kind"] for mark in told["messages"][2]["tokens"]]
    assert kinds == ["model", "model", "rejected", "target", "target"]
    page = to_html(conversation)
    assert '<span class="model"> a</span>' in page
    assert "<del" in page
    assert "<script" not in page
    assert "http" not in page


def test_an_export_is_literal_text(tmp_path: Path) -> None:
    conversation = talk(("q", None, "user", "<script>alert(1)</script> & more"))
    assert "<script>" not in to_html(conversation)
    path = export(conversation, tmp_path / "chat.html")
    with pytest.raises(SavedChatError, match="exists"):
        export(conversation, path)
    with pytest.raises(SavedChatError, match=r"ends in none of \.md, \.json, \.html"):
        export(conversation, tmp_path / "chat.pdf")
    with pytest.raises(SavedChatError, match="cannot be written"):
        export(conversation, tmp_path / "no folder" / "chat.md")
    with pytest.raises(SavedChatError, match="nothing to export"):
        export(Conversation(), tmp_path / "empty.md")


def test_a_length_that_was_not_allowed_goes_through_json() -> None:
    first = round_of(0, ["a"], "b")
    barred = replace(first, worth=(0.0, -math.inf, 0.5))
    line = json.dumps(as_json(barred), allow_nan=False)
    assert round_from_json(json.loads(line)) == barred


def test_the_outlook_with_other_figures_is_no_other_note() -> None:
    said: set[str] = set()
    first = f"{COPIES_ALONE}: a draft model cannot pay here: 15 a round, 0.91 times"
    assert new_notes([first], said) == [first]
    assert new_notes([f"{COPIES_ALONE}: a draft model can hardly pay here: 3 a round"], said) == []


def test_other_notes_are_new_when_a_figure_is() -> None:
    said: set[str] = set()
    notes = ["2 earlier messages left out", "3 earlier messages left out"]
    assert new_notes(notes, said) == notes
    assert new_notes(notes, said) == []
