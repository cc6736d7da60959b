# SPDX-License-Identifier: Apache-2.0
"""The way from the command line to the daemon: look first, then connect, all within a deadline.

`ray.init` at an address where nobody answers blocks for minutes and cannot be interrupted. So the address is tried by
TCP first, and what Ray does after that happens on a thread that is left behind when the deadline is over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import FOUND
from sentinel.errors import DaemonError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

TCP_SECONDS = 2.0
ADDRESS_FILE = "ray_current_cluster"


class AbsentError(DaemonError):
    """No cluster, or no daemon in it: an answer, not a fault of the command."""

    exit_code = FOUND


class UnreachableError(DaemonError):
    """Somebody should be there and does not answer: an answer, not a fault of the command."""

    exit_code = FOUND


def add_address_options(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options that say where the cluster is."""
    parser.add_argument(
        "--address", help="Ray cluster as HOST:PORT (default: RAY_ADDRESS, else the cluster of this machine)"
    )
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="give up after (default 30)")


def ask(args: argparse.Namespace, what: str, question: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the daemon's answer.

    Raises:
        AbsentError: there is no cluster or no daemon.
        UnreachableError: it does not answer within the deadline.
        DaemonError: it refused; the text says why.
    """

    def call() -> dict[str, Any]:
        import ray

        actor = daemon_of(args)
        answer: dict[str, Any] = ray.get(actor.query.remote(what, dict(question or {})), timeout=args.timeout)
        return answer

    answer: dict[str, Any] = within(args.timeout, call)
    if "error" in answer:
        raise DaemonError(str(answer["error"]))
    return answer


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what `call` returns, or raise what it raises, but not later than `seconds` from now.

    Raises:
        UnreachableError: it took longer, or Ray says that the daemon does not answer.
    """
    # Before Ray is imported: it looks at the environment then, and never again.
    prepare_authentication()
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # noqa: BLE001  # carried over to the caller's thread
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="sentinel-ray", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise UnreachableError(f"no answer within {seconds:.0f} s")
    good, result = outcome[0]
    if good:
        return result
    if isinstance(result, DaemonError):
        raise result
    if type(result).__module__.startswith("ray") or isinstance(result, ConnectionError):
        first = str(result).strip().split("\n")[0]
        raise UnreachableError(f"the daemon does not answer: {type(result).__name__}: {first}{_token_hint(result)}")
    raise result


def connect(args: argparse.Namespace) -> str:
    """Connect this process to the cluster and return its address; call it inside `within`.

    Raises:
        AbsentError: there is no cluster.
        UnreachableError: nobody listens at its address.
    """
    address = find_address(args.address)
    if address is None:
        raise AbsentError("no Ray cluster is running here, and RAY_ADDRESS names none")
    knock(address)
    import ray

    # Ray warns that a thread other than the main one sets no signal handlers; none are wanted here.
    logging.getLogger("ray").setLevel(logging.ERROR)
    if not ray.is_initialized():
        ray.init(
            address=address, namespace="sentinel", logging_level="ERROR", log_to_driver=False, configure_logging=False
        )
    return address


def daemon_of(args: argparse.Namespace) -> Any:
    """Connect and return the daemon's handle; call it inside `within`.

    Raises:
        AbsentError: there is no cluster or no daemon.
        UnreachableError: nobody listens at the cluster's address.
    """
    address = connect(args)
    from sentinel.daemon import ray_actor

    actor = ray_actor.find()
    if actor is None:
        raise AbsentError(f"no daemon runs in the cluster at {address} (start it with `sentinel up`)")
    return actor


def find_address(given: str | None) -> str | None:
    """Return the cluster's HOST:PORT: as given, of RAY_ADDRESS, of the last `ray start`, or of a process here.

    Raises:
        DaemonError: several clusters run here and none is named, only another user's does, or the address is none.
    """
    address = given or os.environ.get("RAY_ADDRESS") or ""
    if address and address != "auto":
        if not re.fullmatch(r"[^\s/:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", address):
            raise DaemonError(f"{address!r} is no address of a Ray cluster: expected HOST:PORT")
        return address
    with contextlib.suppress(OSError):
        root = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray"  # noqa: S108  # Ray's own folder
        found = (root / ADDRESS_FILE).read_text(encoding="utf-8").strip()
        if found and _ours((root / ADDRESS_FILE).stat().st_uid) and _answers(found):
            return found
    owners = gcs_addresses()
    running = sorted(address for address, users in owners.items() if any(map(_ours, users)))
    if len(running) > 1:
        raise DaemonError(f"several Ray clusters run here: {', '.join(running)}; choose one with --address")
    if owners and not running:
        # Never a neighbour's by chance: what is asked of a daemon can stop it, or dump a step of somebody's training.
        raise DaemonError(
            f"the Ray clusters here are another user's ({', '.join(sorted(owners))}): name one with --address"
        )
    return running[0] if running else None


def _ours(user: int) -> bool:
    """Whether what belongs to this user may be taken without being named; root stands for everybody."""
    return os.geteuid() in {0, user}


def gcs_addresses() -> dict[str, set[int]]:
    """Return the addresses of the Ray clusters whose processes run on this machine, each with the users that run them."""
    found: dict[str, set[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"raylet"):
                for word in words:
                    name, _, address = word.decode(errors="replace").partition("=")
                    if name == "--gcs-address" and address:
                        found.setdefault(address, set()).add(folder.stat().st_uid)
    return found


def knock(address: str) -> None:
    """Raise UnreachableError unless somebody listens at `address`."""
    if not _answers(address):
        raise UnreachableError(f"nobody listens at {address} (is the Ray cluster still running?)")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=TCP_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


def _token_hint(error: BaseException) -> str:
    """What to try where a cluster cannot be joined; Ray says nothing of tokens in what it raises."""
    if not isinstance(error, ConnectionError):
        return ""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return " (the cluster may have another token: compare ~/.ray/auth_token with the head's)"
    return " (the cluster may want a token: copy ~/.ray/auth_token from its head, export RAY_AUTH_MODE=token)"


def prepare_authentication() -> None:
    """Say that a token is used where there is one; without it Ray waits 20 s and gives up."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    token = os.environ.get("RAY_AUTH_TOKEN") or Path(
        os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    )
    if isinstance(token, str) or token.is_file():
        os.environ["RAY_AUTH_MODE"] = "token"
