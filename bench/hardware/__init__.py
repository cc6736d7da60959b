# SPDX-License-Identifier: Apache-2.0
"""The whole path across two kinds of hardware: a GPU's baseline, runs elsewhere, what was said of them, and its cost."""
