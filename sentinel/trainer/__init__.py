# SPDX-License-Identifier: Apache-2.0
"""The part of Sentinel that lives inside the training processes.

Rules, each with a test: standard library only at import; nothing raises into training; one bounded wait at a step
boundary and no other; nothing stays behind after a capture; nothing happens unless a run is named.
"""
