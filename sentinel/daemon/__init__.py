# SPDX-License-Identifier: Apache-2.0
"""The daemon: one process that watches any number of runs and outlives them.

    report(message) -> protocol.parse -> run_watch.RunWatch -> Engine.advance -> (state, effects)
                                            |                                       |
                                         journal                    chores: triage, reports, alerts

`watchdog.Watchdog` is the daemon without Ray; `ray_actor.WatchdogActor` is the Watchdog as a named, detached actor.
"""
