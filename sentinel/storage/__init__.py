# SPDX-License-Identifier: Apache-2.0
"""Shells that keep things: the daemon's journal, baseline bundles, and recordings of reference runs."""
