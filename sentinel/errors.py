# SPDX-License-Identifier: Apache-2.0
"""Every exception that Sentinel raises on purpose.

SentinelError
 |- SettingsError        the configuration is at fault
 |- BaselineError        a baseline bundle or recording cannot be used
 |- UnreadableLog        a metric file is refused; carries a code of formats/README.md
 |- UnreadableDump       a dump directory cannot be read or compared
 |- JournalError         the journal cannot be written or read; the daemon goes on without it
 |- DaemonError          the daemon is absent, unreachable or refused
 `- IllegalTransition    a state machine was given an event that its table forbids

Bad data is never an exception: it is a Finding.
Each message is one line that says what, where and what to do; the command line prints it and exits with 2.
"""


class SentinelError(Exception):
    """Base of every error raised on purpose; `str(error)` is one line for people."""


class SettingsError(SentinelError):
    """The settings are at fault: unknown key, wrong type, value out of range."""


class BaselineError(SentinelError):
    """A baseline bundle or recording cannot be used: `path` and the reason."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = str(path)
        self.why = why


class UnreadableLog(SentinelError):
    """A metric file is refused; `code` is one of unknown_format, empty_file, unsupported_container, unreadable."""

    def __init__(self, path: object, code: str, why: str) -> None:
        super().__init__(f"{path}: {why} [{code}]")
        self.path = str(path)
        self.code = code
        self.why = why


class UnreadableDump(SentinelError):
    """A dump directory cannot be read: `path` and the reason."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = str(path)
        self.why = why


class JournalError(SentinelError):
    """The journal cannot be written (disk full), read, or opened: `path` and the reason. The daemon goes on watching."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = str(path)
        self.why = why


class DaemonError(SentinelError):
    """The daemon is absent, unreachable, or refused a request."""


class IllegalTransition(SentinelError):
    """A state machine was given an event that its table forbids."""

    def __init__(self, state: str, event: str) -> None:
        super().__init__(f"{event} is not possible in state {state}")
        self.state = state
        self.event = event
