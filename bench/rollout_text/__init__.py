# SPDX-License-Identifier: Apache-2.0
"""The labelled set of rollout text: how its rows are made."""
