# SPDX-License-Identifier: Apache-2.0
"""Sentinel watches a live VeRL run against its baseline and holds the dump that shows what went wrong.

This module imports nothing, so that `import sentinel` costs a training process nothing.
"""

__version__ = "0.1.0"
