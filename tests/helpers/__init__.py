"""What several test modules share; no test module imports another."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

pytest.register_assert_rewrite("helpers.policies", "helpers.simulation")
