# SPDX-License-Identifier: Apache-2.0
"""Is a dump worth it, of which stages and steps, and what became of it."""
