# SPDX-License-Identifier: Apache-2.0
"""Long work is told, short work is silent."""

import io
import threading

from sentinel.cli.progress import Progress


class Heard(io.StringIO):
    """A stream that can be waited for."""

    def __init__(self):
        super().__init__()
        self.wrote = threading.Event()

    def write(self, text):
        super().write(text)
        if text.endswith("\n"):
            self.wrote.set()
        return len(text)


def test_work_that_takes_long_is_told_while_it_goes_on():
    heard = Heard()

    with Progress(stream=heard, quiet_seconds=0.01) as progress:
        progress.says("packing b")
        assert heard.wrote.wait(5)

    assert heard.getvalue().startswith("packing b (")


def test_short_work_is_silent():
    heard = Heard()

    with Progress(stream=heard) as progress:
        progress.says("packing b")

    assert heard.getvalue() == ""
