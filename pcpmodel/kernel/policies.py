"""A rule of one's own in a file: compiled once, and put on any release.

The file is Cython and says ``policy = pcp_policy_object(&rule)`` (cython_pcp.pxd;
examples/cython/).  Compiling and calling runs its code: nothing is compiled but what a user names.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, field
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.files import home_of, read_bytes, read_sealed, read_text, write_sealed, writing
from pcpmodel.kernel.pcp import policy_callbacks
from pcpmodel.kernel.releases import Release, release
from pcpmodel.kernel.tree import MAX_SECONDS, cache_folder, compiler, limits, refuse_full_disk

__all__ = ["Policy", "RuledRelease", "policy", "with_policy"]

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Policy:
    """A rule of one's own, compiled.

    Attributes
    ----------
    name : str
        Of its file.
    digest : str
        Of its text and of what it was compiled with.
    capsule : object
        What ``pcp_policy_object`` of `pcpmodel.cython_pcp` made.
    """

    name: str
    digest: str
    capsule: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (self.name, self.digest)


@dataclass(frozen=True)
class RuledRelease(Release):
    """A release on which a rule of one's own decides.

    Attributes
    ----------
    name, patches, batch_scale_max
        As of `Release`.
    policy : Policy or object
        What decides.
    policy_digest : str
        Of a `Policy`; empty for one that was made in this process.
    """

    policy: Any = field(default=None, compare=False, repr=False)
    policy_digest: str = ""

    @property
    def recorded(self) -> dict[str, str]:
        """What a result's record says of it beside its name."""
        return {"policy_digest": self.policy_digest}

    @property
    def release_name(self) -> str:
        """Name of the release without the rule, as `release` takes it."""
        return self.name.replace(_with(self.policy), "", 1)


def with_policy(state: str | Release, rule: Any) -> Release:
    """A release whose decisions a rule of one's own takes, as far as it has them.

    Parameters
    ----------
    state : str or Release
    rule : Policy or object
        What `policy`, or ``pcp_policy_object`` of `pcpmodel.cython_pcp`, made; None changes
        nothing.

    Raises
    ------
    InputError
        For what is no rule, a kernel tree, or a release that has a rule already.
    """
    found = release(state)
    if rule is None:
        return found
    policy_callbacks(rule)  # refuses what is no policy
    if type(found) is not Release:
        raise InputError(f"{found.name} has rules of its own already; a policy goes on a release")
    digest = rule.digest if isinstance(rule, Policy) else ""
    return RuledRelease(
        f"{found.name}{_with(rule)}", found.patches, found.batch_scale_max, rule, digest
    )


def _with(rule: Any) -> str:
    """What a rule adds to the name of its release."""
    return f" with {rule.name if isinstance(rule, Policy) else 'policy'}"


def policy(path: str | os.PathLike[str]) -> Policy:
    """Compile a rule of one's own from a file.

    This runs code of the file: open only what you would run.

    Parameters
    ----------
    path : path
        A Cython file that makes a ``policy`` (examples/cython/).

    Returns
    -------
    Policy
        For ``policy=`` anywhere.

    Raises
    ------
    InputError
        If it does not compile: which line, and why; or if its own code raises; or makes no policy.
    """
    file = home_of(path)
    if not file.exists():
        raise InputError("there is no such file", file=file)
    text = read_text(file)
    cc = compiler()
    interface = read_text(_PACKAGE / "cython_pcp.pxd")
    parts = (text, interface, sys.version, cc)
    digest = hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:32]
    library = _library(digest)
    if read_sealed(library) is None:
        _compile(file, text, digest, library, cc)
    try:
        return _loaded(file.stem, digest)
    except InputError:
        raise
    except Exception as error:  # the file's own
        raise InputError(f"{type(error).__name__}: {error}", file=file) from error


def _library(digest: str) -> Path:
    return cache_folder("policies") / f"{digest}.so"


def _module(digest: str) -> str:
    return f"pcpmodel_policy_{digest[:16]}"


def _loaded(name: str, digest: str) -> Policy:
    """A rule that was compiled before."""
    library = _library(digest)
    if read_sealed(library) is None:
        raise InputError(
            f"policy {name}: what was compiled of it ({library}) is not on this machine; "
            f"compile it here"
        )
    module = _module(digest)
    spec = spec_from_file_location(
        module, library, loader=ExtensionFileLoader(module, os.fspath(library))
    )
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    capsule = getattr(made, "policy", None)
    if type(capsule).__name__ != "PyCapsule":
        raise InputError(
            f"policy {name}: makes no policy: it has to say policy = pcp_policy_object(&rule)"
        )
    return Policy(name, digest, capsule)


def _compile(file: Path, text: str, digest: str, library: Path, cc: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=library.parent) as scratch:
        source = Path(scratch, f"{_module(digest)}.pyx")
        with writing(source):
            source.write_text(text)
        generated, built = source.with_suffix(".c"), source.with_suffix(".so")
        steps = (
            [sys.executable, "-m", "cython", "-3", "-I", _PACKAGE.parent, "-o", generated, source],
            [cc, "-O2", "-g0", "-w", "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}",
             f"-I{_PACKAGE / 'kernel'}", "-o", built, generated],
        )  # fmt: skip
        for step in steps:
            try:
                done = subprocess.run(
                    step, capture_output=True, text=True, errors="replace", cwd=scratch,
                    stdin=subprocess.DEVNULL, timeout=2 * MAX_SECONDS, preexec_fn=limits,
                    env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
                    check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise InputError("the compiler takes too long", file=file) from None
            if done.returncode:
                log = library.with_suffix(".log")
                with writing(log):
                    log.write_text(done.stdout + done.stderr)
                refuse_full_disk(done.stderr, library)
                raise InputError(f"{_sentence(done.stderr)} (all of it: {log})", file=file)
        write_sealed(library, read_bytes(built))


def _sentence(errors: str) -> str:
    """The first thing that a compiler has against a file, with its line."""
    error = re.search(r"\.pyx:(\d+):\d+: (.+)", errors) or re.search(r":(\d+): error: (.+)", errors)
    if error:
        return f"line {error.group(1)}: {error.group(2).strip()}"
    lines = [line for line in errors.splitlines() if line.strip()]
    return f"does not compile: {lines[-1][:200]}" if lines else "does not compile"
