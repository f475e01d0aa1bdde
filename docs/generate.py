"""Pages that are made from the package and its data."""

# SPDX-License-Identifier: GPL-2.0-only

import re
from collections.abc import Mapping
from pathlib import Path

import pcpmodel as pm


def reference(names: Mapping[str, bool]) -> str:
    """One entry for every public name; ``names`` says which of them are modules."""
    parts = ["# Reference\n\nEvery name of `import pcpmodel as pm`.\n"]
    for name, module in names.items():
        where = pm._PUBLIC[name]
        directive, target = ("automodule", where) if module else _directive(name, where)
        options = ":members:\n" if directive != "autofunction" else ""
        if module:
            own = [n for n in names if pm._PUBLIC[n] == where and not names[n]]
            options += f":exclude-members: {', '.join(own)}\n" if own else ""
        lines = "".join(f"   {line}\n" for line in options.splitlines())
        parts.append(f"## pm.{name}\n\n```{{eval-rst}}\n.. {directive}:: {target}\n{lines}```\n")
    return "\n".join(parts)


def _directive(name: str, where: str) -> tuple[str, str]:
    kind = "autoclass" if isinstance(getattr(pm, name), type) else "autofunction"
    return kind, f"{where}.{name}"


def worked_examples(tests: Path) -> int:
    """How many worked examples stand in ``tests/examples_pcp.py``, by their T-numbers."""
    text = (tests / "examples_pcp.py").read_text(encoding="utf-8")
    return len(set(re.findall(r'\("(T\d+)"', text)) | set(re.findall(r'^ +"(T\d+)",', text, re.M)))


def verification(root: Path) -> str:
    """How exactly the recordings of ``data/traces`` are replayed, counted now."""
    lines = [
        "| recording | allocations | refills | drains | unexplained |",
        "|---|---|---|---|---|",
    ]
    exact = replayed = 0
    for path in sorted(p.parent for p in (root / "data" / "traces").glob("*/meta.json")):
        capture = pm.capture(path)
        if "before" not in capture.tags:
            continue
        found = pm.replay(capture)
        d = found.as_dict()
        replayed += 1
        exact += not found.nr_unexplained
        cells = [f"{d[k + '_exact']:,} of {d[k]:,}" for k in ("allocations", "refills", "drains")]
        lines.append(f"| {path.name} | {' | '.join(cells)} | {found.nr_unexplained} |")
    return f"""# How the model is verified

1. A slow twin in pure Python, `pcpmodel.kernel.reference`, agrees with the compiled core on random
   sequences of operations, for every one of the {len(pm.releases())} releases.
2. Both agree with {worked_examples(root / "tests")} worked examples, made by running the
   kernel's own functions (`tests/examples_pcp.py`).
3. Recordings of real kernels are replayed: each allocation, refill and drain is compared with what
   the kernel did. Of {replayed} recordings that start with a dump of the lists, **{exact} leave no
   difference unexplained**; the table was counted while this page was built.
4. The event engine gives the same bits as the per-page engine.
5. Published tables are set against the simulator, misses included: `pcpmodel compare` (see
   {{doc}}`limits`).

{chr(10).join(lines)}
"""
