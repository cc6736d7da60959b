# SPDX-License-Identifier: Apache-2.0
"""One generator for each kind of row. Healthy kinds first, then the broken ones with the label that is right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from bench.rollout_text.words import Vocabulary

Maker = Callable[[random.Random, Vocabulary], str]
_STOP = ["the", "of", "and", "to", "a", "in", ",", ".", ";", ")", "is", "for", "as", ",", ",", "."]
_STOP_HELD = ["it", "that", "on", ",", "with", "at", ".", "by", ",", "be", "or", "(", "and", "the", "to", ":", "of"]
_HAN_EMPTY = "的了是在和也这就都而与之于"
_REAL_START = ("The answer is ", "First, we note that the sum is fixed. ", "", "", "We have ", "So ")


def _fill(rng: random.Random, voc: Vocabulary, sentence: str) -> str:
    a, b = rng.randint(2, 90), rng.randint(2, 60)
    return sentence.format(a=a, b=b, sum=a + b, who=rng.choice(voc.people), what=rng.choice(voc.things))


def _sentences(  # noqa: PLR0917 - a generator's own shorthand
    rng: random.Random, voc: Vocabulary, source: tuple[str, ...], low: int, high: int, gap: str
) -> str:
    # Without replacement: sound text says a thing once.
    chosen = rng.sample(source, min(len(source), rng.randint(low, high)))
    return gap.join(_fill(rng, voc, sentence) for sentence in chosen)


def english(rng: random.Random, voc: Vocabulary) -> str:
    """Prose and word problems."""
    return _sentences(rng, voc, voc.prose, 3, 14, rng.choice((" ", "\n", "\n\n")))


def maths(rng: random.Random, voc: Vocabulary) -> str:
    """Worked sums, one a line, with the answer's mark."""
    value, lines = rng.randint(5, 60), []
    for number in range(rng.randint(2, 9)):
        change = rng.randint(2, 12)
        sign, after = rng.choice((("+", value + change), ("-", value - change), ("*", value * change)))
        label = rng.choice((f"Step {number + 1}: ", "", f"{rng.choice(voc.people)} has "))
        lines.append(f"{label}{value} {sign} {change} = {after}")
        value = after
    return "\n".join(lines) + f"\n\n#### {value}"


def chinese(rng: random.Random, voc: Vocabulary) -> str:
    """Chinese prose and word problems."""
    return _sentences(rng, voc, voc.chinese, 1, 8, rng.choice(("", "\n")))


def chinese_maths(rng: random.Random, voc: Vocabulary) -> str:
    """Chinese sums: few words, many signs."""
    a, b = rng.randint(2, 40), rng.randint(2, 12)
    lines = [f"{a} × {b} = {a * b}（{rng.choice('个元米只本页')}）", f"{a * b} + {a} = {a * b + a}"]
    if rng.random() < 0.5:
        lines.insert(0, _fill(rng, voc, rng.choice(voc.chinese)))
    if rng.random() < 0.5:
        lines.append(f"所以 $\\frac{{{a}}}{{{b}}}$ 不是整数。")
    return "\n".join([*lines, f"答：一共是 {a * b + a}。" if rng.random() < 0.5 else f"\\boxed{{{a * b + a}}}"])


def mixed(rng: random.Random, voc: Vocabulary) -> str:
    """Chinese with English terms."""
    return _sentences(rng, voc, voc.mixed, 2, 6, rng.choice(("", "\n", "\n\n")))


def languages(rng: random.Random, voc: Vocabulary) -> str:
    """Other European languages; now and then several in one answer, as in a translation."""
    return _sentences(rng, voc, voc.languages, 1, 5, rng.choice((" ", "\n")))


def asian(rng: random.Random, voc: Vocabulary) -> str:
    """Japanese and Korean."""
    return _sentences(rng, voc, voc.asian, 1, 6, rng.choice((" ", "\n")))


def code(rng: random.Random, voc: Vocabulary) -> str:
    """Programs in five languages, with and without a fence."""
    name, n = rng.choice(voc.things).rstrip("s"), rng.randint(2, 9)
    other = rng.choice(voc.phrases).split()[0].strip("-*.,").lower() or "item"
    sources = {
        "python": f"def count_{name}(values):\n    total = 0\n    for value in values:\n        if value % {n} == 0:\n            total += value\n    return total\n\n\nassert count_{name}([{n}, {n * 2}, 1]) == {n * 3}\nassert count_{name}([]) == 0\nprint(count_{name}(range({n * 10})))",
        "cpp": f"#include <vector>\n#include <algorithm>\n\nint {name}_{other}(const std::vector<int>& v) {{\n    int best = 0;\n    for (size_t i = 0; i < v.size(); ++i) {{\n        best = std::max(best, v[i] % {n});\n    }}\n    return best;\n}}",
        "js": f"const {name} = (xs) => xs\n  .filter((x) => x > {n})\n  .map((x) => x * {n})\n  .reduce((a, b) => a + b, 0);\nconsole.log({name}([1, 2, {n}]));",
        "sql": f"SELECT {name}_id, COUNT(*) AS n, SUM(price) AS total\nFROM {name}s\nWHERE created_at > '2024-0{n}-01'\nGROUP BY {name}_id\nHAVING COUNT(*) > {n}\nORDER BY total DESC;",
        "bash": f'#!/bin/bash\nset -e\nfor f in *.{name}; do\n  mv "$f" "${{f%.{name}}}.txt"\n  if [ $? -ne 0 ]; then exit {n}; fi\ndone\ngrep -rn \'{other}\' . | sort | uniq -c | head -{n}',
    }
    language = rng.choice(sorted(sources))
    body = sources[language]
    return f"```{language}\n{body}\n```" if rng.random() < 0.6 else body


def latex(rng: random.Random, voc: Vocabulary) -> str:
    """Formulas with a little text."""
    n, m = rng.randint(2, 9), rng.randint(2, 9)
    parts = [
        f"$$\\int_0^{{{n}}} x^{{{m}}}\\,dx = \\left[\\frac{{x^{{{m + 1}}}}}{{{m + 1}}}\\right]_0^{{{n}}} = \\frac{{{n ** (m + 1)}}}{{{m + 1}}}$$",
        f"\\begin{{aligned}}\n{n}x + {m}y &= {n * m} \\\\\nx - y &= {m} \\\\\n{n + m}x &= {n * m + m * m}\n\\end{{aligned}}",
        f"\\[ \\sum_{{k=1}}^{{{n}}} k^2 = \\frac{{{n}({n}+1)(2\\cdot {n}+1)}}{{6}} = {n * (n + 1) * (2 * n + 1) // 6} \\]",
        f"$\\begin{{pmatrix}} {n} & 0 & {m} \\\\ 0 & {m} & 0 \\\\ {m} & 0 & {n} \\end{{pmatrix}}$",
        f"$\\alpha_{{{n}}} \\in \\mathbb{{R}}^{{{m}}}$, $\\lVert \\alpha \\rVert_2 \\le \\sqrt{{{n * m}}}$",
    ]
    rng.shuffle(parts)
    text = "\n".join(parts[: rng.randint(1, 5)])
    return text if rng.random() < 0.4 else f"{_fill(rng, voc, rng.choice(voc.prose))}\n{text}\n\\boxed{{{n * m}}}"


def json_text(rng: random.Random, voc: Vocabulary) -> str:
    """JSON documents, minified or not; some are matrices of numbers."""
    if rng.random() < 0.25:
        return json.dumps([[rng.randint(0, 1) for _ in range(rng.randint(4, 10))] for _ in range(rng.randint(3, 9))])
    rows = [
        {"id": i, "name": rng.choice(voc.people), "item": rng.choice(voc.things), "price": round(rng.random() * 90, 2),
         "tags": rng.sample(voc.things, 2), "active": rng.random() < 0.5}
        for i in range(rng.randint(1, 9))
    ]  # fmt: skip
    return json.dumps({"results": rows, "next": None}, indent=rng.choice((None, 2)))


def tool_call(rng: random.Random, voc: Vocabulary) -> str:
    """Calls of tools in the forms that agents use."""
    arguments = {"city": rng.choice(voc.people), "days": rng.randint(1, 9), "unit": rng.choice(("C", "F"))}
    call = json.dumps({"name": f"get_{rng.choice(voc.things)}", "arguments": arguments})
    if rng.random() < 0.5:
        return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for _ in range(rng.randint(1, 3)))
    thought = _fill(rng, voc, rng.choice(voc.prose))
    return f"Thought: {thought}\nAction: search\nAction Input: {call}\nObservation: {rng.randint(1, 99)} results"


def think(rng: random.Random, voc: Vocabulary) -> str:
    """Thinking aloud: self-checks and second thoughts, which repeat themselves a little."""
    turns = (
        "Wait, let me check that.",
        "Hmm, is that right?",
        "Okay, so far so good.",
        "Let me try again.",
        "等等，再算一次。",
    )
    lines = []
    for sentence in rng.sample(voc.prose, rng.randint(3, 10)):
        lines.append(_fill(rng, voc, sentence))
        if rng.random() < 0.4:
            lines.append(rng.choice(turns))
    return f"<think>\n{' '.join(lines)}\n</think>\n\nThe answer is {rng.randint(1, 99)}."


def table(rng: random.Random, voc: Vocabulary) -> str:
    """Markdown: tables, lists, rules."""
    rows = [
        f"| {rng.choice(voc.people)} | {rng.choice(voc.things)} | {rng.randint(1, 99)} |"
        for _ in range(rng.randint(2, 12))
    ]
    listed = [f"- {_fill(rng, voc, s)}" for s in rng.sample(voc.prose, rng.randint(0, 4))]
    return "\n".join(
        ["# Result", "=" * rng.randint(5, 70), "", "| name | item | count |", "|---|---|---|", *rows, "", *listed]
    )


def listing(rng: random.Random, voc: Vocabulary) -> str:
    """Bare lists of names and things, multiplication tables, decimals."""
    kind = rng.randrange(4)
    if kind == 0:
        return ", ".join(rng.sample(voc.things + voc.people, rng.randint(5, 12)))
    if kind == 1:
        n = rng.randint(2, 12)
        return "\n".join(f"{n} x {i} = {n * i}" for i in range(1, rng.randint(6, 15)))
    if kind == 2:
        return f"1/{rng.choice((3, 7, 9, 11, 13))} = 0." + str(10**40 // rng.choice((3, 7, 9, 11, 13)))
    return "\n".join(f"{i}. {rng.choice(voc.things)} ({rng.randint(1, 50)})" for i in range(1, rng.randint(5, 20)))


def short(rng: random.Random, voc: Vocabulary) -> str:
    """A letter, a number, a word."""
    return rng.choice(voc.short)


def character_run(rng: random.Random, voc: Vocabulary) -> str:
    """Token 0 for ever, at once or after a beginning."""
    start = rng.choice(("", "", rng.choice(_REAL_START), _fill(rng, voc, rng.choice(voc.prose)) + " "))
    return start + rng.choice("!!!!?@$&") * rng.randint(60, 600)


def spaced_run(rng: random.Random, voc: Vocabulary) -> str:
    """The same with blanks between."""
    del voc
    return (rng.choice("!?@&%") * rng.randint(1, 8) + rng.choice((" ", "\n", "  "))) * rng.randint(30, 120)


def script_salad(rng: random.Random, voc: Vocabulary) -> str:
    """Words of many scripts and pieces of code, in no order."""
    pool = voc.scripts + voc.pieces[:20]
    return rng.choice((" ", " ", "")).join(
        rng.choice(pool) + rng.choice(("", "", "", "(", ";", "\n")) for _ in range(rng.randint(14, 90))
    )


def piece_salad(rng: random.Random, voc: Vocabulary) -> str:
    """Token pieces of Latin script, in no order."""
    words = [rng.choice(voc.pieces) for _ in range(rng.randint(30, 160))]
    return "".join(word if rng.random() < 0.3 else f" {word}" for word in words).strip()


def stop_word_soup(rng: random.Random, voc: Vocabulary) -> str:
    """The most frequent tokens and nothing else."""
    pool = _STOP if voc.people[0] == "Mara" else _STOP_HELD
    return "".join(rng.choice(("", " ", " ")) + rng.choice(pool) for _ in range(rng.randint(90, 300)))


def chinese_soup(rng: random.Random, voc: Vocabulary) -> str:
    """The same in Chinese."""
    del voc
    return "".join(rng.choice(_HAN_EMPTY + "，，。") for _ in range(rng.randint(60, 300)))


def phrase_loop(rng: random.Random, voc: Vocabulary) -> str:
    """A phrase for ever, after a beginning or at once, cut anywhere."""
    start = rng.choice(("", _sentences(rng, voc, voc.prose, 1, 6, " ") + " "))
    phrase = rng.choice(voc.phrases)
    text = phrase * rng.randint(8, 60)
    return start + text[: len(text) - rng.randint(0, len(phrase) - 1)]


def chinese_loop(rng: random.Random, voc: Vocabulary) -> str:
    """The same in Chinese."""
    start = rng.choice(("", _sentences(rng, voc, voc.chinese, 1, 4, "")))
    phrase = rng.choice(voc.chinese_phrases)
    text = phrase * rng.randint(20, 80)
    return start + text[: len(text) - rng.randint(0, len(phrase) - 1)]


def drifting_loop(rng: random.Random, voc: Vocabulary) -> str:
    """A loop with a counter in it, so that no two rounds are equal."""
    phrase = rng.choice(voc.phrases).strip()
    gap = rng.choice((" ", "\n"))
    return gap.join(f"{n}. {phrase}" if rng.random() < 0.97 else phrase for n in range(1, rng.randint(60, 200)))


def noise(rng: random.Random, voc: Vocabulary) -> str:
    """Printable characters at random."""
    del voc
    return "".join(chr(rng.randint(33, 126)) if rng.random() < 0.93 else " " for _ in range(rng.randint(80, 500)))


def undecodable(rng: random.Random, voc: Vocabulary) -> str:
    """Byte pieces that make no character, between pieces that do."""
    return "".join(
        rng.choice(("\ufffd", "\ufffd\ufffd", rng.choice(voc.pieces), rng.choice(voc.scripts)[:2], "\x05", " "))
        for _ in range(rng.randint(30, 200))
    )


def empty(rng: random.Random, voc: Vocabulary) -> str:
    """Nothing, blanks, or end markers."""
    del voc
    return rng.choice(
        ("", " ", "\n\n", "<|endoftext|>", "<|im_end|>", "</s>", "\t \n", "<|endoftext|>" * 9, "<think></think>")
    )


def broken_midway(rng: random.Random, voc: Vocabulary) -> str:
    """Sound text that breaks half-way."""
    return (
        _sentences(rng, voc, voc.prose, 3, 8, " ")
        + " "
        + rng.choice((piece_salad, script_salad, stop_word_soup))(rng, voc)
    )


HEALTHY: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        english, maths, chinese, chinese_maths, mixed, languages, asian, code, latex, json_text, tool_call, think, table,
        listing, short,
    )
}  # fmt: skip
BROKEN: dict[str, tuple[str, Maker]] = {
    maker.__name__: (label, maker)
    for label, makers in (
        ("garbled", (character_run, spaced_run, script_salad, piece_salad, stop_word_soup, chinese_soup, noise, undecodable, broken_midway)),
        ("repetitive", (phrase_loop, chinese_loop, drifting_loop)),
        ("empty", (empty,)),
    )
    for maker in makers
}  # fmt: skip
