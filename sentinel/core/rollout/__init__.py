# SPDX-License-Identifier: Apache-2.0
"""Rollouts, judged: text, agreement with the baseline's, whether a replay happened, and which side is at fault."""
