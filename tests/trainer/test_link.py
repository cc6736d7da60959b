# SPDX-License-Identifier: Apache-2.0
"""The way over Ray while the daemon is away: what waits there is bounded."""

import sys
import types

import pytest

from sentinel.trainer.link import DaemonLink


class RayError(Exception):
    pass


class GetTimeoutError(RayError, TimeoutError):
    pass


class Ray(types.ModuleType):
    """As much of Ray as the link uses; a call is answered when the daemon is there."""

    exceptions = types.SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError)

    def __init__(self):
        super().__init__("ray")
        self.there, self.calls = True, []
        self.report = types.SimpleNamespace(remote=self._called)

    def _called(self, message):
        self.calls.append(message["records"])
        return len(self.calls)

    def is_initialized(self):
        return True

    def get(self, call, timeout):
        if not self.there:
            raise GetTimeoutError
        return {"step": call}

    def wait(self, calls, timeout):
        return (calls, []) if self.there else ([], calls)


@pytest.fixture
def ray(monkeypatch):
    made = Ray()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def test_only_one_call_waits_for_a_daemon_that_is_away(ray):
    """Ray keeps what is not sent yet; hours of it would fill the object store of the run."""
    link = DaemonLink("r", "s", None)
    link._actor = ray
    ray.there = False
    for _ in range(50):
        with pytest.raises(TimeoutError):
            link.send([{"t": "step"}])

    assert len(ray.calls) == 1

    ray.there = True
    assert link.send([{"t": "step"}, {"t": "end"}]) == {"step": 2}
    assert link.send([]) == {"step": 3}
