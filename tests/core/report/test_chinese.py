# SPDX-License-Identifier: Apache-2.0
"""Every sentence that detectors, signatures and triage write has a Chinese form; the English forms are read out of their code."""

import ast
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sentinel
from sentinel.core.capture.escalation import RUNGS
from sentinel.core.detect import mismatch
from sentinel.core.report.chinese import MOST_CHARACTERS, in_chinese, sentences
from sentinel.core.signatures import SIGNATURES

ROOT = Path(sentinel.__file__).parent
GAP = "norm 3.5 against 4.25"
# What a hole may hold where it is no number: a phrase of another place of the code, with its own forms.
HOLES = {
    "sign.why": [
        "it began at 0.5",
        "it began at 0.5: text no longer ends",
        "although there are advantages to learn from",
    ],
    "WHY": [*mismatch.WHY.values(), "equal inputs would give equal numbers"],
    "entry.text": ["KL divergence between rollout engine and trainer."],
    "_words(tally)": ["garbled", "repetitive or garbled"],
    "kind": ["garbled"],
    "around.load_format": ["dummy"],
    "_why(forest, fault, module)": ["model.mlp: inputs agree, output.0 does not"],
    "_gap(target, golden)": [GAP, "shape [2, 3] against [2, 4]", "checksum a1 against b2", "not a number on one side"],
    "_last_inside(fault.node)": ["", ", though what Functional.linear.3 inside it made does"],
    "first.why": [f"model.mlp: inputs agree, output.0 does not: {GAP}, 2.5 times what is allowed there"],
}
# File -> names of variables or arguments that hold sentences there.
SENTENCES = {
    "core/detect/collapse.py": {"because"},
    "core/detect/departure.py": {"because"},
    "core/detect/e_detector.py": {"because"},
    "core/detect/drift.py": {"because"},
    "core/detect/limit.py": {"because"},
    "core/detect/mismatch.py": {"because"},
    "core/detect/nonfinite.py": {"because"},
    "core/detect/silence.py": {"because"},
    "core/detect/spike.py": {"because"},
    "core/rollout/live.py": {"because"},
    "core/localise.py": {"because"},
    "core/triage/tell.py": {"why"},
    "core/triage/nonfinite.py": {"why"},
    "core/capture/healthy.py": {"why"},
}


def written(node, names):
    """Every text that an expression may make, its holes filled; `names` are what is assigned in the same file."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [*written(node.body, names), *written(node.orelse, names)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [one + other for one, other in itertools.product(written(node.left, names), written(node.right, names))]
    if isinstance(node, ast.JoinedStr):
        return ["".join(parts) for parts in itertools.product(*(filled(part, names) for part in node.values))]
    if isinstance(node, ast.Name):
        return names.get(node.id, [])
    return []


def filled(part, names):
    if isinstance(part, ast.Constant):
        return [part.value]
    source = ast.unparse(part.value)
    known = next((texts for name, texts in HOLES.items() if source == name or source.startswith(f"{name}.get(")), None)
    return known or written(part.value, names) or ["3.5"]


def assigned(tree):
    """Name -> the texts that its assignments may make, in order of the file."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts = written(node.value, names)
            if texts:
                names.setdefault(node.targets[0].id, []).extend(texts)
    return names


def texts_of(file, names):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    known = assigned(tree)
    for node in ast.walk(tree):
        pairs = []
        if isinstance(node, ast.keyword):
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
        for name, value in pairs:
            if name in names:
                yield from written(value, known)


WRITTEN = [(file, text) for file, names in SENTENCES.items() for text in texts_of(file, names)]


# Files whose every f-string of some words is a note or a conclusion.
NOTES = (
    "core/triage/verdict.py",
    "core/triage/structure.py",
    "core/triage/sides.py",
    "core/triage/comparable.py",
    "core/report/agreement.py",
    "core/engine/telling.py",
)
NOTE_HOLES = {
    "_told(triage)": ["The dump of step 9 equals the golden dump in 12 entries."],
    "beside": ["", "It bears out the earlier dump, which named a.b (forward)."],
    "said": ["step 9, Functional.linear.3.forward (output.0): model.mlp: inputs agree, output.0 does not"],
    "question": ["which operation of the module parts first?"],
    "core/triage/verdict.py where": ["actor_update rank 0"],
    "core/engine/telling.py where": ["step 9", "the run"],
    "_at(triage)": ["step 9", "the run"],
    "lead": ["Updates are skipped."],
    "verdict.structure": ["3 modules ran in the target only, first a.b"],
    "verdict.rows_why": ["a.b output.0 holds other numbers"],
    "named": ["a.b (forward)"],
    "here": ["c.d (backward)"],
    "_named(earlier)": ["a.b (forward)"],
    "incident.because.rstrip()": ["Updates are skipped."],
    "sick": ["2"],
    "', '.join(sick)": ["rank 1 at a.b, rank 2 at c.d"],
    "triage.verdict": ["diverged", "non_finite"],
    "module": ["", ": a.b first"],
    "first.direction": ["forward"],
    "side": ["target", "golden dump"],
    "_list(mine)": ["0, 1"],
    "_list(theirs)": ["0"],
    "_list(common)": ["0"],
    "first.why": HOLES["first.why"],
    "'; '.join(triage.notes) or 'step, rows or weights differ'": ["step, rows or weights differ"],
}


def notes_of(file):
    """Every f-string of at least three words that stands in no other one."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    # `said` is a piece of sentences that stand below it.
    pieces = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["said"]
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or id(node) in inner | pieces:
            continue
        options = []
        for part in node.values:
            name = "" if isinstance(part, ast.Constant) else ast.unparse(part.value)
            known = NOTE_HOLES.get(name) or NOTE_HOLES.get(f"{file} {name}") or ["3.5"]
            options.append([part.value] if isinstance(part, ast.Constant) else known)
        for parts in itertools.product(*options):
            text = "".join(parts)
            if len(re.findall(r"\b[a-z]{2,}\b", text)) >= 3:
                yield text


def unknown(text):
    return [english for english, chinese in sentences(text) if chinese is None]


def test_every_file_of_the_detectors_that_writes_sentences_is_read():
    writing = {
        f"core/detect/{file.name}"
        for file in (ROOT / "core/detect").glob("*.py")
        if re.search(r"because=\(?\s*f", file.read_text(encoding="utf-8"))
    }

    assert writing == {file for file in SENTENCES if file.startswith("core/detect/")}
    assert {file for file, _ in WRITTEN} == set(SENTENCES)


@pytest.mark.parametrize(("file", "text"), WRITTEN)
def test_every_sentence_of_the_code_has_a_chinese_form(file, text):
    assert unknown(text) == []
    assert re.search(r"[\u4e00-\u9fff]", in_chinese(text))


@pytest.mark.parametrize("file", NOTES)
def test_every_note_and_conclusion_of_triage_has_a_chinese_form(file):
    notes = list(notes_of(file))

    assert notes
    assert {note: unknown(note) for note in notes if unknown(note)} == {}


@pytest.mark.parametrize("why", [signature.why for signature in SIGNATURES])
def test_every_signature_has_a_chinese_form(why):
    assert unknown(why) == []
    assert unknown(f"{why[0].upper()}{why[1:]}.") == []


def test_every_origin_of_a_walk_has_a_chinese_form():
    """Those of `tell._why` stand in its returns, before the gap and how far it is."""
    tree = ast.parse((ROOT / "core/triage/tell.py").read_text(encoding="utf-8"))
    why = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "_why")
    heads = [
        text for node in ast.walk(why) if isinstance(node, ast.Return) for text in written(node.value, assigned(why))
    ]

    assert len(heads) >= 7
    for head in heads:
        assert unknown(f"{head}: {GAP}, 2.5 times what is allowed there") == []


@pytest.mark.parametrize("rung", ["source", "operations", "tensors"])
def test_every_question_that_is_asked_deeper_has_a_chinese_form(rung):
    assert unknown(f"Asked {RUNGS[rung].question} The dump of step 9 equals the golden dump in 12 entries.") == []


def test_numbers_and_names_stand_in_the_chinese_sentence():
    told = in_chinese("actor/kl_loss is 0.25 at step 17 where 3 seeds stand at 0.125: +6.5 standard deviations.")

    assert told == "第 17 步 actor/kl_loss 为 0.25，而 3 个种子为 0.125：相差 +6.5 个标准差。"


def test_a_whole_incident_is_told_sentence_by_sentence():
    origin = f"model.layers.1.mlp: inputs agree, output.0 does not: {GAP}, 33 times what is allowed there"
    text = (
        "actor/grad_norm is NaN at step 7; it was 0.31 before. Updates are skipped. "
        f"The dump of step 9 shows model.layers.1.mlp (forward, output.0) of actor_update first: {origin} "
        f"Deeper, at step 10, Functional.linear.3.forward (output.0): {origin} "
        "It contradicts the earlier dump, which named a.b (forward): here it is c.d (backward)."
    )

    assert unknown(text) == []
    assert len(list(sentences(text))) == 5
    assert in_chinese(text).count("。") == 5
    assert "前向" in in_chinese(text)


def test_what_no_form_knows_stays_english():
    assert in_chinese("A worker is tired.") is None
    assert in_chinese("A worker is tired. Came back at step 4.") == "A worker is tired. 第 4 步再次出现。"
    assert in_chinese("") is None
    assert in_chinese("x " * MOST_CHARACTERS) is None


@given(st.text(max_size=300))
def test_any_text_is_taken(text):
    shown = in_chinese(f'A worker said "{text}" after step 3.')

    assert shown is None or isinstance(shown, str)
    assert "".join("".join(english for english, _ in sentences(text)).split()) == "".join(text.split())
