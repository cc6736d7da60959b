# SPDX-License-Identifier: Apache-2.0
"""What is told to people: findings gathered into incidents, incidents as text and plain dicts."""
