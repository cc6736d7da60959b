# SPDX-License-Identifier: Apache-2.0
"""Readers of the metric files that training runs write, for finished and for growing ones.

    bytes -> lines.Splitter -> Parser of a format -> ledger.Ledger -> Reading

`read_file` reads one file or folder whole; `Follower` reads what is added to it.
"""

from sentinel.sources.files import read_file
from sentinel.sources.follow import Follower, FollowResult, follow

__all__ = ["FollowResult", "Follower", "follow", "read_file"]
