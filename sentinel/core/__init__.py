# SPDX-License-Identifier: Apache-2.0
"""The decisions, pure: no I/O, no clock, no threads, no logging; numpy is the only library.

    Event -> frames (rows of series)  -> compare (deviation from the baseline, in tolerances)
          -> detect (findings)        -> localise (suspects along the data flow)
          -> report.incidents (open, grow, merge, close)
          -> capture (is a dump worth it: which stage, which steps)   -> Effects

`engine.Engine.advance(state, event)` runs that pipeline once; the state is a value, and the effects are carried out by shells.
"""
