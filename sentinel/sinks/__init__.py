# SPDX-License-Identifier: Apache-2.0
"""Shells that carry out effects: exported metrics, the HTTP endpoint, alerts, reports, terminal views."""
