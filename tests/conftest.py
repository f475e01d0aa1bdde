"""What all tests share."""

# SPDX-License-Identifier: GPL-2.0-only

from hypothesis import settings

# The same examples in every run, however slow the machine.
settings.register_profile("pcpmodel", deadline=None, derandomize=True)
settings.load_profile("pcpmodel")
