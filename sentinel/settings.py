# SPDX-License-Identifier: Apache-2.0
"""Every setting of Sentinel, composed from the components' own settings; read from `sentinel.yaml`.

`deploy/sentinel.yaml` documents each key. A key that is not known is an error that names the nearest one; all errors
of a file are said at once, in one line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sentinel.core.detect import DETECTORS
from sentinel.core.engine import EngineSettings
from sentinel.errors import SettingsError
from sentinel.sinks.alerting import AlertSettings
from sentinel.sinks.http_access import HttpSettings

REGIMES = ("auto", "replayed", "free")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSettings:
    """What the trainer's side is told."""

    wait_seconds: float = 0.05
    """How long a step boundary waits at most for the verdict on the step before it."""
    dump_root: str | None = None
    """Folder for dumps, seen by every node; default `<home>/dumps`. Characters that msprobe refuses cost a detour over the temporary folder."""

    min_free_bytes: int = 268435456
    """Free space that a dump folder must have, beyond what the dump is expected to take."""
    keep_dump_bytes: int = 53687091200
    """Room for all dumps of a run; beyond it the oldest and least informative go, an open incident's never."""
    flight_recorder_bytes: int = 0
    """Memory of each worker for the last inputs of its stages without side effects, so that one can be run again; 0: nothing is kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.wait_seconds <= 1:
            raise ValueError(f"wait_seconds is {self.wait_seconds}; it must be from 0 to 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that can be set."""

    run: str | None = None
    """Name of the run; the environment variable SENTINEL_RUN wins. Without either nothing is watched."""
    home: str = "~/.sentinel"
    """Folder of journal, incidents and dumps; on shared storage it survives the node."""
    baseline: str | None = None
    """Path of the baseline: a bundle, a recording, or any metric file; relative to the settings file."""
    regime: str = "auto"
    """`replayed`: the run replays the baseline's rollouts; `free`: it makes its own; `auto`: Sentinel finds out."""
    msprobe_tables: bool = True
    """Whether `msprobe compare` and `graph_visualize` make their table and graph beside each report, where msprobe is installed."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)

    def __post_init__(self) -> None:
        if self.regime not in REGIMES:
            raise ValueError(f"regime is {self.regime!r}; it must be one of {', '.join(REGIMES)}")
        if not self.home:
            raise ValueError("home is empty; it must be a folder")
        unknown = [name for name in self.engine.detectors if name not in DETECTORS]
        if unknown:
            raise ValueError(f"engine.detectors: {unknown[0]!r} is none of {', '.join(DETECTORS)}")

    @property
    def home_folder(self) -> Path:
        """`home` as an absolute path."""
        return Path(self.home).expanduser().absolute()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], where: str = "settings") -> Settings:
        """Return the settings that `mapping` says, defaults for the rest.

        Raises:
            SettingsError: one line with every unknown key, wrong type and value out of range.
        """
        errors: list[str] = []
        settings: Settings | None = build(cls, mapping, "", errors)
        if errors or settings is None:
            raise SettingsError(f"{where}: {'; '.join(errors)}")
        return settings


def load(path: str | Path) -> Settings:
    """Return the settings of a YAML file.

    Raises:
        SettingsError: it cannot be read, is no YAML, or says something wrong; one line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return parse(text, str(path))


def parse(text: str, where: str = "settings") -> Settings:
    """Return the settings of a YAML text; an empty one is all defaults. Relative paths are relative to `where`.

    Raises:
        SettingsError: as `load`.
    """
    document = _yaml(text, where)
    if not isinstance(document, Mapping):
        raise SettingsError(f"{where}: expected keys and values, found {type(document).__name__}")
    settings = Settings.from_mapping(document, where)
    folder = Path(where).expanduser().absolute().parent
    trainer = dataclasses.replace(settings.trainer, dump_root=_anchored(folder, settings.trainer.dump_root))
    return dataclasses.replace(
        settings,
        home=_anchored(folder, settings.home) or settings.home,
        baseline=_anchored(folder, settings.baseline),
        trainer=trainer,
    )


def _anchored(folder: Path, path: str | None) -> str | None:
    """Return a relative path as one below `folder`; `~` stays, it is another place in every process."""
    return path if path is None or path.startswith("~") else str(folder / path)


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice, where YAML itself would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml(text: str, where: str) -> Any:
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  # derived from SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise SettingsError(f"{where}: {place}{getattr(error, 'problem', None) or error}") from error
    return {} if document is None else document


# --------------------------------------------------------------------------- mappings to dataclasses


def build(cls: type[Any], mapping: object, where: str, errors: list[str]) -> Any:
    """Return a `cls` from a mapping, checking keys and types; None after an error, which joins `errors`.

    Args:
        cls: a dataclass whose fields are numbers, texts, booleans, tuples, mappings, unions with None, or dataclasses.
        mapping: what was given.
        where: dotted path of the mapping, for messages.
        errors: gets one sentence for each fault.
    """
    if mapping is None:
        mapping = {}
    if not isinstance(mapping, Mapping):
        errors.append(f"{where}: expected keys and values, found {_kind(mapping)}")
        return None
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}
    before = len(errors)
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in known:
            errors.append(f"{place} is no setting{_nearest(str(key), known)}")
        else:
            values[key] = _convert(hints[key], value, place, errors)
    if len(errors) > before:
        return None
    try:
        return cls(**values)
    except (ValueError, SettingsError) as error:
        errors.append(f"{where}: {error}" if where else str(error))
        return None


def _nearest(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else f" (known: {', '.join(sorted(known))})"


def _convert(hint: Any, value: Any, where: str, errors: list[str]) -> Any:
    """Return `value` as `hint` wants it, or None after an error."""
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), value, where, errors)
    if origin in (typing.Union, types.UnionType):
        members = [m for m in typing.get_args(hint) if m is not type(None)]
        if value is None and len(members) < len(typing.get_args(hint)):
            return None
        return _convert(members[0], value, where, errors)
    if origin is tuple and isinstance(value, (list, tuple)):
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, v, f"{where}[{i}]", errors) for i, v in enumerate(value))
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        item = typing.get_args(hint)[1]
        return {str(k): _convert(item, v, f"{where}.{k}", errors) for k, v in value.items()}
    return _scalar(hint, value, where, errors)


def _scalar(hint: Any, value: Any, where: str, errors: list[str]) -> Any:
    """Return a number, text or switch; no setting of Sentinel is a negative number."""
    if hint is float and not isinstance(value, bool):
        # YAML 1.1 takes `1e-3` for text.
        with contextlib.suppress(TypeError, ValueError):
            value = float(value)
    fits = hint in (Any, object) or (isinstance(hint, type) and type(value) is hint)
    if not fits:
        errors.append(f"{where}: expected {_NAMES.get(typing.get_origin(hint) or hint, hint)}, found {_kind(value)}")
    elif hint in (int, float) and not value >= 0:
        errors.append(f"{where} is {value}; it must not be negative")
    return value


_NAMES: Mapping[Any, str] = {
    tuple: "a list",
    float: "a number",
    int: "a whole number",
    str: "text",
    bool: "true or false",
}


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "keys and values"
    return f"{value!r:.60}"
