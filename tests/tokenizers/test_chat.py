from __future__ import annotations

import json
import time
import tracemalloc

import pytest

from cutaway.errors import InputError
from cutaway.tokenizers import Tokenizer, from_folder, from_gguf, train
from cutaway.tokenizers.chat import ChatTemplate

USER = [{"role": "user", "content": "Hi"}]


def render(source: str, messages=USER, **variables) -> str:
    return ChatTemplate(source).render(messages, variables)


@pytest.fixture(scope="session")
def smollm2_tokenizer():
    from cutaway.checkpoints.gguf import GGUF
    from cutaway.checkpoints.pull import pull

    path = pull("smollm2")
    return from_gguf(GGUF(path).values, str(path))


@pytest.fixture(scope="session")
def case(shared):
    return json.loads((shared / "cases" / "smollm2.json").read_text(encoding="utf-8"))


def test_smollm2_conversations(smollm2_tokenizer, case):
    for talk in case["chat"]:
        for name, flag in (("plain", False), ("with_generation_prompt", True)):
            text = smollm2_tokenizer.render_chat(talk["messages"], add_generation_prompt=flag)
            assert text == talk[name]["text"]
            assert smollm2_tokenizer.encode_chat(talk["messages"], add_generation_prompt=flag) == talk[name]["ids"]


def test_trap_37_two_bos_tokens(smollm2_tokenizer, case):
    for talk in case["chat"]:
        ids = smollm2_tokenizer.encode_chat(talk["messages"])
        assert ids == talk["with_generation_prompt"]["ids"]
    # a tokenizer that adds a begin token to every text adds none to a conversation that has its own
    base = train(["some text"] * 3, 270, special=("<s>", "</s>"))
    from cutaway.tokenizers import build

    build.surround(base.backend, {"bos": 0}, {})
    tokenizer = Tokenizer(base.backend, {"bos": 0}, {"default": "{{ bos_token }}{{ messages[0].content }}"})
    assert tokenizer.encode("x").count(0) == 1
    assert tokenizer.encode_chat(USER).count(0) == 1
    without = Tokenizer(base.backend, {"bos": 0}, {"default": "{{ messages[0].content }}"})
    assert without.encode_chat(USER).count(0) == 0  # the template decides, nothing is added behind its back


def test_what_templates_of_today_use():
    assert render("{%- for m in messages %}\n  {{- m.role }}\n{%- endfor %}") == "user"
    assert render("{% if true %}\nx\n{% endif %}\ny") == "x\ny"  # trim_blocks and lstrip_blocks
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "Hi"}]'
    assert render("{{ {'a': '<é>'} | tojson(indent=2) }}") == '{\n  "a": "<é>"\n}'
    assert render("{% generation %}{{ messages[0]['content'] }}{% endgeneration %}") == "Hi"
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("{{ strftime_now('%Y') }}") >= "2024"
    assert (
        render("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}")
        == "1"
    )
    assert render("{{ messages[0].content.strip().upper() ~ tail }}", tail="!") == "HI!"
    assert render("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}") == "<a>"
    assert render("{{ messages | map(attribute='role') | join(',') }}", USER * 2) == "user,user"
    assert render("{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{% endfor %}", USER * 2) == "0False1True"
    assert render("{{ '%s:%d' % ('a', 3) }}{{ '{}-{}'.format(1, 2) }}") == "a:31-2"
    assert render("{{ messages[0].get('tools') is none }}{{ x is defined }}") == "TrueFalse"
    assert render("{{ messages[0].content | length + 1700000000 }}") == "1700000002"


def test_the_template_may_refuse():
    with pytest.raises(InputError, match=r"^the chat template refuses: roles must alternate$"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__.__globals__.os }}",
        "{{ raise_exception.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ (messages|attr('__class__')) }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ strftime_now.__code__ }}",
        "{% if true %}",
        "{{ 1 / 0 }}",
        "{{ undefined.attribute }}",
        "{{ messages | nosuchfilter }}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "x" * (1 << 21),
    ],
)
def test_escapes_and_mistakes_give_an_error_and_nothing_else(source):
    try:
        text = render(source)
    except InputError as error:
        assert "\n" not in str(error).strip()  # noqa: PT017
        return
    assert text == ""  # what is not safe is undefined to the template


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10**10 }}",
        "{{ [1] * 10**10 }}",
        "{{ 10**(10**10) }}",
        "{{ 7**(9**9) }}",
        "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=['a']) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ 'a'.center(9999999999) }}",
        "{{ 'a' | center(9999999999) }}",
        "{{ 'a' | indent(9999999999, true) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '%*d' % (9999999999, 1) }}",
        "{{ '%9999999999d' | format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ '{:>{w}}'.format(1, w=9999999999) }}",
        "{% set a = 'a' * 9999999 %}{{ a.replace('a', a) }}",
        "{% set a = 'a' * 9999999 %}{{ a.join(range(99999) | map('string') | list) }}",
        "{% set a = 'a' * 9999999 %}{{ a | replace('a', a) }}",
        "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(900) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(80) }}",
        "{{ lipsum(n=10**6) }}",
        "{{ 'a' | wordwrap(1, wrapstring='a' * 99999999) }}",
        "{{ 3.1 | round(10**9, 'floor') }}",
    ],
)
def test_time_and_memory_are_bounded(source):
    start = time.thread_time()
    with pytest.raises(InputError):
        render(source)
    assert time.thread_time() - start < 1
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            render(source)
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()


def test_a_long_conversation_fits_the_budget():
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.text = '<|im_start|>' + m.role + '\n' ~ m.content | trim + '<|im_end|>' %}{{ ns.text }}"
        "{% else %}{{ m.content.replace('<think>', '') }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 400}, {"role": "assistant", "content": "word " * 400}] * 500
    start = time.perf_counter()
    assert len(render(source, messages)) > 1_900_000
    assert time.perf_counter() - start < 2


def test_what_is_missing_is_named(smollm2_tokenizer):
    with pytest.raises(InputError, match=r"no chat template 'tools' \(it has: default\)"):
        smollm2_tokenizer.render_chat(USER, template="tools")
    with pytest.raises(InputError, match="line 2"):
        render("a\n{% for %}")


def test_named_templates_in_a_folder(tmp_path):
    tokenizer = train(["text"] * 3, 260)
    tokenizer.templates = {"default": "d{{ add_generation_prompt }}", "tool_use": "t{{ tools | length }}"}
    tokenizer.save(tmp_path)
    again = from_folder(tmp_path)
    assert again.templates == tokenizer.templates
    assert again.render_chat(USER) == "dTrue"
    assert again.render_chat(USER, template="tool_use", tools=[{}, {}]) == "t2"
    (tmp_path / "chat_template.jinja").write_text("from the file", encoding="utf-8")
    assert from_folder(tmp_path).render_chat(USER) == "from the file"
