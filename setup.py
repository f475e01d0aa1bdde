"""Build of the Cython core; everything else is in pyproject.toml.

``PCPMODEL_SANITIZE=1`` builds with AddressSanitizer and UBSan and with
Cython's bounds checks on (``make sanitize``).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = os.environ.get("PCPMODEL_SANITIZE") == "1"

compile_args = ["-O3", "-fno-semantic-interposition"]
link_args: list[str] = []
directives = {"language_level": 3, "embedsignature": True, "binding": True}
if SANITIZE:
    flags = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    compile_args = ["-O1", "-g", "-fno-sanitize-recover=undefined", *flags]
    link_args = flags
    directives |= {"boundscheck": True, "wraparound": False}

extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for path in sorted(Path("pcpmodel").rglob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        compiler_directives=directives,
        # Generated C stays out of the source tree, and so out of sdist and wheel.
        build_dir="build/cython-sanitize" if SANITIZE else "build/cython",
        annotate=os.environ.get("PCPMODEL_ANNOTATE") == "1",
        force=SANITIZE,
        quiet=True,
    ),
)
