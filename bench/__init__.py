# SPDX-License-Identifier: Apache-2.0
"""The numbers that the documentation quotes, each beside a named peer or limit, made in one run."""
