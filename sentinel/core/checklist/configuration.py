# SPDX-License-Identifier: Apache-2.0
"""The configuration: what was written, what is in force, and the keys that have a check of their own.

A key is judged by one check only, so that one difference is one failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sentinel.core.checklist.result import FAIL, PASS, UNKNOWN, WARN, CheckResult, Difference, worst
from sentinel.core.checklist.rules import IGNORE, Expected, Rules
from sentinel.core.checklist.side import Side, comparable

ABSENT = "absent"
_SHOWN = 6
_RECORD = "give --log (verl prints its configuration) or --launch, on both sides"
SHUFFLES = ("data.shuffle", "data.validation_shuffle")
LOAD_FORMAT = "actor_rollout_ref.rollout.load_format"
LOG_PROBS = "actor_rollout_ref.rollout.calculate_log_probs"


def shuffle(target: Side, golden: Side, _rules: Rules) -> CheckResult:
    """Both sides read prompts in the order of the file."""
    differences = []
    for key in SHUFFLES:
        for side, name in ((target, "here"), (golden, "baseline")):
            if not side.knows(key):
                status, found = UNKNOWN, "unknown"
            elif comparable(side.value(key)) is False:
                continue
            else:
                status, found = FAIL, str(side.value(key))
            fix = f"{key}=False" if name == "here" else f"record the baseline again with {key}=False"
            differences.append(
                Difference(
                    what=f"{key} ({name})",
                    found=found,
                    expected=False,
                    status=status,
                    fix=fix if status == FAIL else _RECORD,
                )
            )
    return CheckResult(
        id="data.shuffle",
        title="Data is not shuffled",
        status=worst(d.status for d in differences),
        found=_listed(differences) or "data.shuffle=False data.validation_shuffle=False, on both sides",
        expected="data.shuffle=False data.validation_shuffle=False",
        fix=_fixes(differences),
        why="shuffled prompts come in another order on each side; then nothing can be compared step by step",
        differences=tuple(differences),
    )


def load_format(target: Side, golden: Side, _rules: Rules) -> CheckResult:
    """The rollout engine takes its first weights from the same place."""
    title = "The rollout engine starts from the same weights"
    known = target.knows(LOAD_FORMAT) and golden.knows(LOAD_FORMAT)
    here, there = target.value(LOAD_FORMAT), golden.value(LOAD_FORMAT)
    why = (
        "with `dummy` the engine starts from random weights and gets its first ones by the weight sync: garbled text then "
        "points at sharding, and reading well with `safetensors` does not clear it"
    )
    if not known:
        return CheckResult(
            id="rollout.load_format",
            title=title,
            status=UNKNOWN,
            found="unknown",
            expected="the baseline's",
            fix=_RECORD,
            why=why,
        )
    same = comparable(here) == comparable(there)
    return CheckResult(
        id="rollout.load_format",
        title=title,
        status=PASS if same else FAIL,
        found=f"{LOAD_FORMAT}={here}",
        expected=str(there),
        fix="" if same else f"{LOAD_FORMAT}={there}",
        why=why,
        differences=()
        if same
        else (Difference(what=LOAD_FORMAT, found=here, expected=there, fix=f"{LOAD_FORMAT}={there}"),),
    )


def log_probs(target: Side, golden: Side, _rules: Rules) -> CheckResult:
    """The engine's own log-probs are kept: without them rollout and trainer cannot be compared."""
    title = "The engine's log-probs are calculated"
    why = "training/rollout_probs_diff_* compares engine and trainer on the same tokens, and is absent without them"
    if not target.knows(LOG_PROBS):
        return CheckResult(
            id="rollout.logprobs", title=title, status=UNKNOWN, found="unknown", expected="True", fix=_RECORD, why=why
        )
    if comparable(target.value(LOG_PROBS)) is not True:
        fix = f"{LOG_PROBS}=True"
        return CheckResult(
            id="rollout.logprobs",
            title=title,
            status=FAIL,
            found=f"{LOG_PROBS}={target.value(LOG_PROBS)}",
            expected="True",
            fix=fix,
            why=why,
            differences=(Difference(what=LOG_PROBS, found=target.value(LOG_PROBS), expected=True, fix=fix),),
        )
    baseline = golden.value(LOG_PROBS) if golden.knows(LOG_PROBS) else "unknown"
    there = comparable(baseline) is True
    return CheckResult(
        id="rollout.logprobs",
        title=title,
        status=PASS if there else WARN,
        found=f"True here; baseline {baseline}",
        expected="True",
        fix="" if there else f"record the baseline again with {LOG_PROBS}=True",
        why=why,
    )


def explicit(target: Side, golden: Side, rules: Rules) -> CheckResult:
    """What the launches wrote."""
    title = "The launches write the same"
    if target.explicit is None and golden.explicit is None:
        return _without_launch(title, target, golden, rules)
    differences = list(_explicit_differences(target, golden, rules))
    judged = _judged(_written(target, golden), rules)
    unknown = [d for d in differences if d.status == UNKNOWN]
    return CheckResult(
        id="config.explicit",
        title=title,
        status=worst(d.status for d in differences),
        found=_listed(differences) or f"{len(judged)} written keys agree",
        expected="every written key equal to the baseline's",
        fix=_fixes(differences) or (_RECORD if unknown else ""),
        why="; ".join(dict.fromkeys(d.why for d in differences if d.why)),
        differences=tuple(differences),
    )


def _without_launch(title: str, target: Side, golden: Side, rules: Rules) -> CheckResult:
    """Without launch scripts: everything that was written is among the values in force."""
    whole = effective(target, golden, rules)
    good = whole.status in (PASS, WARN)
    return CheckResult(
        id="config.explicit",
        title=title,
        status=PASS if good else UNKNOWN,
        found=f"{golden.explicit_why}; "
        + ("the values in force agree, and hold everything that was written" if good else "see config.effective"),
        expected="every written key equal to the baseline's",
        fix="" if good else "give --launch on both sides",
    )


def effective(target: Side, golden: Side, rules: Rules) -> CheckResult:
    """Every value in force, defaults included, but for what `config.explicit` has judged."""
    title = "The values in force are the same, defaults included"
    reasons = [
        f"{name}: {side.effective_why}"
        for name, side in (("here", target), ("baseline", golden))
        if side.effective is None
    ]
    if reasons or target.effective is None or golden.effective is None:
        return CheckResult(
            id="config.effective",
            title=title,
            status=UNKNOWN,
            found="; ".join(reasons),
            expected="the baseline's values",
            fix=_RECORD,
        )
    skipped = {d.what for d in _explicit_differences(target, golden, rules)}
    keys = sorted(_judged({*target.effective, *golden.effective}, rules) - skipped)
    differences = [d for key in keys for d in _effective(key, target, golden, rules)]
    differences += [d for one in rules.expected for d in _expectation(one, target)]
    return CheckResult(
        id="config.effective",
        title=title,
        status=worst(d.status for d in differences),
        found=_listed(differences) or f"{len(keys)} values agree",
        expected="every value equal to the baseline's; paths, profiler, logging and Ray do not count",
        fix=_fixes(differences),
        why="; ".join(dict.fromkeys(d.why for d in differences if d.why)),
        differences=tuple(differences),
    )


def _explicit_differences(target: Side, golden: Side, rules: Rules) -> Iterator[Difference]:
    for key in sorted(_judged(_written(target, golden), rules)):
        unresolved = key in target.unresolved or key in golden.unresolved
        here, there = _known(target, key), _known(golden, key)
        rule = rules.of_key(key)
        if unresolved and (here is None or there is None):
            yield Difference(
                what=key,
                found="taken from elsewhere",
                expected="a value",
                status=UNKNOWN,
                fix="give --log: it shows the value",
            )
        elif here is None or there is None:
            # Written on one side only; without the other's values in force its default is not known.
            yield Difference(
                what=key,
                found="not written; default unknown" if here is None else here[0],
                expected="not written; default unknown" if there is None else there[0],
                status=UNKNOWN,
                fix=_RECORD,
            )
        elif comparable(here[0]) != comparable(there[0]):
            yield _difference(key, (here[0], there[0]), rule.severity, rule.why, target)


def _effective(key: str, target: Side, golden: Side, rules: Rules) -> Iterator[Difference]:
    assert target.effective is not None
    assert golden.effective is not None
    here, there = target.effective.get(key, ABSENT), golden.effective.get(key, ABSENT)
    if comparable(here) == comparable(there):
        return
    # An empty mapping on one side stands for the keys below it on the other.
    if ABSENT in (here, there) and comparable(here if there == ABSENT else there) in ((), None):
        return
    rule = rules.of_key(key)
    severity = WARN if ABSENT in (here, there) else rule.severity
    written = key in (target.explicit or {}) or key in (golden.explicit or {})
    launches = target.explicit is not None and golden.explicit is not None
    nobody = " (a default: nobody wrote it)" if launches and not written else ""
    yield _difference(key, (here, there), severity, f"{rule.why}{nobody}", target)


def _expectation(one: Expected, side: Side) -> Iterator[Difference]:
    if not all(side.effective is not None and key in side.effective for key in one.keys):
        return
    values = [comparable(side.value(key)) for key in one.keys]
    if one.values:
        good = values[0] in [comparable(value) for value in one.values]
        expected: object = one.values[0]
    else:
        good = len(set(values)) == 1 or None in values
        expected = f"equal to {one.keys[0]}"
    if not good:
        yield Difference(
            what=one.keys[-1],
            found=side.value(one.keys[-1]),
            expected=expected,
            status=WARN,
            why=one.why,
            source=one.source,
            fix=override(one.keys[-1], one.values[0] if one.values else side.value(one.keys[0])),
        )


def override(key: str, value: object, *, known: bool = True) -> str:
    """Return a hydra override; `++` where the key may not be in the schema."""
    return f"{'' if known else '++'}{key}={hydra_value(value)}"


def hydra_value(value: object) -> str:
    """Return a value in the grammar of hydra's overrides."""
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(hydra_value(inner) for inner in value) + "]"
    text = str(value)
    plain = text and all(character.isalnum() or character in "_-./:%@+" for character in text)
    if plain and comparable(text) == text:
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _difference(key: str, values: tuple[object, object], severity: str, why: str, target: Side) -> Difference:
    here, there = values
    known = target.effective is None or key in target.effective
    fix = override(key, there, known=known) if there != ABSENT else f"~{key}"
    return Difference(what=key, found=here, expected=there, status=severity, why=why, fix=fix)


def _known(side: Side, key: str) -> tuple[object] | None:
    """Return a key's value in a box, so that null is a value; None where it is not known."""
    if side.knows(key):
        return (side.value(key),)
    # Where every value in force is known, a key that is not among them is known to be absent.
    return (ABSENT,) if side.effective is not None and key not in side.unresolved else None


def _written(target: Side, golden: Side) -> set[str]:
    return {*(target.explicit or ()), *(golden.explicit or ())}


def _judged(keys: Iterable[str], rules: Rules) -> set[str]:
    """Return the keys that the configuration's own checks judge."""
    chosen = set()
    for key in keys:
        rule = rules.of_key(key)
        if rule.severity != IGNORE and not rule.check:
            chosen.add(key)
    return chosen


def _listed(differences: list[Difference]) -> str:
    order = sorted(differences, key=lambda d: d.status != FAIL)
    said = [f"{d.what}={d.found} (baseline {d.expected})" for d in order[:_SHOWN]]
    more = len(differences) - _SHOWN
    return "; ".join([*said, *([f"and {more} more"] if more > 0 else [])])


def _fixes(differences: list[Difference]) -> str:
    return " ".join(dict.fromkeys(d.fix for d in differences if d.fix and d.status in (FAIL, WARN)))
