"""Recordings of real kernels: read them, replay them, make them."""

# SPDX-License-Identifier: GPL-2.0-only
