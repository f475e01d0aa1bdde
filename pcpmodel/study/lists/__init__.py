"""How long the lists should be, and what they keep."""

# SPDX-License-Identifier: GPL-2.0-only
