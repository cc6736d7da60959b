# SPDX-License-Identifier: Apache-2.0
"""What is installed and works here, and what to do about what does not.

Three rules: what may break a process or hang (torch, verl, msprobe, the NPU) is tried in a process of its own with a
time limit; what could not be looked at is `unknown`, never `pass`; each finding says what to do.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentinel.doctor.check import Check
    from sentinel.settings import Settings

TRIALS_AT_ONCE = 2


def examine(
    settings: Settings,
    *,
    npu: bool = False,
    address: str | None = None,
    named: bool = False,
    trial_seconds: float = 120.0,
) -> tuple[Check, ...]:
    """Look at everything and return the checks, in the order in which a person should read them.

    Args:
        settings: whose home, dump folder, port and baseline are looked at.
        npu: also try on the device what needs one.
        address: of the Ray cluster, HOST:PORT; None where there is none.
        named: whether a person named that address, rather than that its processes were seen here.
        trial_seconds: how long one trial may take.
    """
    # Here: a trial imports this package too, and must not need what it is not about.
    from sentinel.doctor.accelerator import checks as checks_of_the_npu
    from sentinel.doctor.cluster import checks as checks_of_ray
    from sentinel.doctor.machine import checks as checks_of_the_machine
    from sentinel.doctor.software import checks as checks_of_the_software
    from sentinel.doctor.trial import run_trial

    names = ["torch", "verl", "dump", *(["npu"] if npu else []), *(["ray"] if address else [])]
    more = {"RAY_ADDRESS": address} if address else {}
    with ThreadPoolExecutor(TRIALS_AT_ONCE) as pool:
        running = {name: pool.submit(run_trial, name, trial_seconds, more) for name in names}
        here = checks_of_the_machine(settings)
        trials = {name: future.result() for name, future in running.items()}
    ray = checks_of_ray(address, trials.get("ray"), named=named)
    on_device = checks_of_the_npu(trials["npu"]) if npu else ()
    return (*here, *ray, *checks_of_the_software(trials), *on_device)
