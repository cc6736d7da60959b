# SPDX-License-Identifier: Apache-2.0
"""Where two dumps part first, and where the first NaN or Inf of one dump comes from.

    layer statistics -> outline (who ran inside whom) -> pairing -> deviations -> walk -> Triage

The walk follows the execution: a module is to blame where its inputs agree and its outputs do not, a container where what it
hands to its children differs although what it was given agrees, a parameter where the others agree.
What is downstream of a difference is never blamed for it.
"""

from sentinel.core.triage.nonfinite import first_non_finite
from sentinel.core.triage.verdict import compare

__all__ = ["compare", "first_non_finite"]
