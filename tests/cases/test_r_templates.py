"""R. Chat templates / special text (the parts about templates and hostile text).

- No template in the GGUF: a named error that offers --raw, never a silent default
  (tests/tiny/test_chat_template.py, test_bad_templates_are_named). A template by architecture is
  not offered: a wrong one makes silent nonsense, which is what the case is about.
- `{% generation %}` and other extensions: tests/tiny/test_chat_template.py,
  test_extensions_of_real_templates_work; a template that does not compile stops the chat alone:
  below.
- "roles must alternate", a system role refused: tests/tiny/test_chat_template.py,
  test_a_template_that_knows_no_system_role_gets_it_in_the_first_turn; two user turns: below.
- User text that spells a control token: tests/tiny/test_chat_template.py,
  test_user_text_cannot_forge_a_turn.
- Security (issue): what a template may compute is bounded: below.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from localspec.errors import ChatTemplateError
from localspec.llama.vocabulary import Vocabulary
from localspec.session import template_sandbox
from localspec.session.session import Session
from localspec.session.template import ChatTemplate
from tests import tiny_models


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def vocabulary(pair: Session) -> Vocabulary:
    return pair._pair.target.model.vocabulary


def render(vocabulary: Vocabulary, source: str, *messages: dict[str, str]) -> str:
    return ChatTemplate(source, vocabulary, "<s>", "</s>").render(messages or (user("hi"),))


@pytest.mark.parametrize("source", ["{% if %}", "{% unknown %}", "(" * 10, "{{ " + "(" * 20_000])
def test_a_broken_template_stops_the_chat_and_not_the_load(tmp_path: Path, source: str) -> None:
    path = tiny_models.write_llama(
        tmp_path / "m.gguf", vocab="bytes", chat_template=source, ends=False
    )
    with Session(path) as session:
        assert session.complete("raw text", max_tokens=2).stats.predicted_n == 2
        if source.startswith("{"):
            with pytest.raises(ChatTemplateError, match=r"does not compile.*--raw"):
                session.chat([user("hi")])


def test_two_user_turns_in_a_row_after_a_cancel(vocabulary: Vocabulary) -> None:
    strict = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.content }}]{% endfor %}"
    )
    assert render(vocabulary, strict, user("one"), user("two")) == "[one\n\ntwo]"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps"),
        ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
         "steps|computes"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "computes too much"),
        ("{% for a in range(999) recursive %}{{ loop(range(999)) }}{% endfor %}", "computes|steps"),
        ("{{ 'a' * 10**9 }}", "characters"),
        ("{{ ['a'] * 10**9 }}", "characters"),
        ("{{ 10 ** (10 ** 10) }}", "bits"),
        ("{{ 'a' | center(10**9) }}", "characters"),
        ("{{ 'a'.ljust(10**9) }}", "characters"),
        ("{{ '%999999999d' % 1 }}", "field"),
        ("{{ '%*d' % (10**9, 1) }}", "field"),
        ("{{ '{:999999999}'.format(1) }}", "field"),
        ("{{ '{:{}}'.format(1, 10**9) }}", "field"),
        ("{{ '%999999999d' | format(1) }}", "field"),
        ("{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
         "{% endfor %}", "characters"),
        ("{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
         "{% endfor %}", "characters"),
        ("{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}"
         "{% endset %}{% set ns.x = y %}{% endfor %}", "characters"),
        ("{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}", "characters"),
        ("{{ 'ab' | replace('a', 'b' * 3999999) | replace('b', 'c' * 3999999) }}", "characters"),
        ("{{ range(99999) | map('center', 99999) | join }}", "characters"),
        ("{{ ('a' * 99999).join(range(99999) | map('string') | list) }}", "characters"),
        ("{{ lipsum(n=10**6) }}", "undefined"),
    ],
)  # fmt: skip
def test_what_a_template_may_compute_is_bounded(
    vocabulary: Vocabulary, source: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "computes" in complaint:
        monkeypatch.setattr(template_sandbox, "MAX_SECONDS", 1.0)
    started = time.process_time()
    with pytest.raises(ChatTemplateError, match=complaint):
        render(vocabulary, source, user("text " * 200))
    assert time.process_time() - started < 60  # a bound that is no bound takes hours


def test_ordinary_work_is_far_from_the_limits(vocabulary: Vocabulary) -> None:
    """A long chat with long texts, by a template that looks at every message twice."""
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim ~ '\\n' }}"
        "{% if not loop.last %}{{ '-' * 3 }}{% endif %}{% endfor %}{{ ns.n }}"
        "{{ '%s and %d' | format('a', 3) }}{{ '{}'.format(loop is defined) }}"
    )
    turns = [{"role": ("user", "assistant")[i % 2], "content": "word " * 4000} for i in range(500)]
    text = render(vocabulary, source, *turns)
    assert text.count("word") == 4000 * 500
    assert text.endswith("500a and 3False")


def test_loops_know_their_place(vocabulary: Vocabulary) -> None:
    source = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}"
        "{% endfor %};{% for m in messages if m.content != 'b' %}{{ loop.length }}{% else %}none"
        "{% endfor %};{% for c in 'xy' | list %}{{ loop.last }}{% endfor %}"
        ";{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}"
        ";{% for x in missing %}{% else %}empty{% endfor %}"
    )
    messages = (user("a"), user("b"), user("c"))
    assert render(vocabulary, source, *messages) == "1/3,2/3,3/3;22;FalseTrue;a1;empty"
