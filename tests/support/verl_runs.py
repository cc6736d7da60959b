# SPDX-License-Identifier: Apache-2.0
"""Real verl runs with a fault, as their trainer processes told the daemon of them, out of tests/data/verl_runs.zip.

verl 0.9.1 on a CPU (V0, replayed rollouts of the H200 bundles in examples/h200, fault planted at step 4), watched by a
real daemon that ordered their dumps. What a trainer sent is what its daemon's journal holds; a run is told again by
Sentinel's own emitter over the daemon's local socket, with its own dumps wherever the daemon orders them again.

    python verl_runs.py HOME RUN...      # makes the archive from a daemon's home
"""

import json
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "tests/data/verl_runs.zip"
BUNDLES = ROOT / "examples/h200"
NAN = "critic_update-nan_grad-2_mlp_down_proj"
"""GAE: from step 4 on every gradient of the critic's layer is NaN in backward."""
DRIFT = "actor_update-scale-0_mlp_gate_proj"
"""GRPO: from step 4 on the actor update's gate projection gives 1.1 times its output."""
BUNDLE_OF = {NAN: "tiny-gae-fp32.sentinel", DRIFT: "tiny-grpo-fp32.sentinel"}
FAULT_AT = 4
_SENT = {"session": "start", "described": "facts", "step": "step", "capture": "receipt", "left": "end"}
_KEPT = ("dump.json", "construct.json")


class RecordedRun:
    """A trainer that tells of a run once more.

    Args:
        name: of the run.
        house: the daemon that it tells.
        folder: for its dumps.
        settings: of the run, besides its baseline.
    """

    def __init__(self, name, house, folder, **settings):
        from sentinel.trainer.door import Door
        from sentinel.trainer.emitter import Emitter

        self.name, self.house, self.folder = name, house, Path(folder)
        with zipfile.ZipFile(ARCHIVE) as archive:
            records = [json.loads(line) for line in archive.read(f"{name}/records.jsonl").splitlines()]
            # A last receipt came after the goodbye.
            self.records = sorted(records, key=lambda record: record["t"] == "end")
            for member in archive.namelist():
                if member.startswith(f"{name}/step_"):
                    archive.extract(member, self.folder)
        text = json.dumps({"baseline": str(BUNDLES / BUNDLE_OF[name]), "msprobe_tables": False, **settings})
        self._config = {"path": None, "text": text}
        self._door = Door(house.door.address, 30.0)
        self.replies = []
        self.emitter = Emitter(self, self.replies.append)

    def send(self, records):
        """The emitter's outlet: the local socket."""
        return self._door.ask({"v": 1, "run": self.name, "session": "recorded", "records": records})

    def close(self):
        """The emitter's, too."""
        self._door.close()

    def tell(self, record):
        """One record, answered; then the daemon has done all that follows from it."""
        number = self.emitter.put({**record, "at": time.time()})
        end = time.monotonic() + 30
        while self.emitter._acked_number < number:
            assert time.monotonic() < end, self.emitter.last_error
            time.sleep(0.005)
        assert self.house.watchdog.deeds.wait(30)
        return self.replies[-1]

    def until(self, step):
        """Tell everything up to the verdict on a step, receipts of earlier steps' dumps included; return the orders."""
        orders = []
        while self.records[0]["t"] != "end" and not (self.records[0]["t"] == "step" and self.records[0]["step"] > step):
            orders = self.tell(self._ours(self.records.pop(0)))["orders"]
        return orders

    def health(self):
        """What the emitter says of itself, as a trainer's session does."""
        told = {"dropped": self.emitter.dropped, "fuses": {"metrics": 0, "capture": 0}}
        return self.tell({"t": "health", **told, "wait_seconds": self.emitter.wait_seconds, "waits_expired": 0})

    def end(self):
        """The rest, and goodbye."""
        self.until(10**9)
        self.tell(self.records.pop())
        self.emitter.close()

    def _ours(self, record):
        if record["t"] == "start":
            return {**record, "config": self._config}
        if record["t"] == "receipt":
            receipt = dict(record["receipt"])
            receipt["paths"] = [str(self.folder / self.name / path) for path in receipt["paths"]]
            return {**record, "receipt": receipt}
        return record


def sent(home, run):
    """What a run's trainer sent to a daemon, out of its journal; dumps are named by their places in the archive."""
    from sentinel.storage.journal_reading import SEGMENTS, entries_after, numbered
    from sentinel.storage.run_folders import journal_folder

    found = []
    for entry in entries_after(numbered(journal_folder(Path(home), run), SEGMENTS), 0):
        if entry.kind not in _SENT:
            continue
        told = {"t": _SENT[entry.kind]}
        if entry.kind in ("session", "described"):
            told["facts"] = entry.payload["facts"]
        else:
            event = entry.payload["event"]
            names = {"step": ("step", "values", "unreadable"), "capture": ("capture", "receipt"), "left": ("finished",)}
            told |= {name: event[name] for name in names[entry.kind]}
        found.append(told)
    return found


def archived(home, run, scrub):
    """(name, bytes) of the files of a run."""
    lines = []
    for told in sent(home, run):
        if told["t"] == "receipt":
            paths = [Path(path) for path in told["receipt"]["paths"]]
            for path in paths:
                for file in sorted(path.rglob("*")):
                    if file.name in _KEPT:
                        yield f"{run}/{path.parent.name}/{file.relative_to(path.parent)}", file.read_bytes()
            told["receipt"]["paths"] = [f"{path.parent.name}/{path.name}" for path in paths]
        lines.append(scrub(json.dumps(told)))
    yield f"{run}/records.jsonl", "\n".join([*lines, ""]).encode()


def main(home, *runs):
    """Write the archive; nothing in it names the machine that made it."""
    import socket

    def scrub(text):
        for old, new in (
            (str(ROOT), "/opt/sentinel"),
            (str(Path(home).parent), "/data"),
            (socket.gethostname(), "node-0"),
        ):
            text = text.replace(json.dumps(old)[1:-1], new) if "/" in old else text.replace(f'"{old}"', f'"{new}"')
        return text

    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for run in runs:
            for name, data in dict(archived(home, run, scrub)).items():
                archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main(*sys.argv[1:])
