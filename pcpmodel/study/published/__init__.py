"""Published tables beside the simulator."""

# SPDX-License-Identifier: GPL-2.0-only
