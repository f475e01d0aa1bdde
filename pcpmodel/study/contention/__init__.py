"""Who waits for the zone lock, and what would help."""

# SPDX-License-Identifier: GPL-2.0-only
