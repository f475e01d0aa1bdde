"""Build of the Cython core; everything else is in pyproject.toml.

``PCPMODEL_SANITIZE=1`` builds with AddressSanitizer and UBSan (``make sanitize``);
``PCPMODEL_CORE=0`` installs without building the core, which ``make`` builds in place.
A source distribution holds the core as it is written: for it no C is generated.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

SANITIZE = os.environ.get("PCPMODEL_SANITIZE") == "1"
CORE = os.environ.get("PCPMODEL_CORE") != "0" and "sdist" not in sys.argv
JOBS = len(os.sched_getaffinity(0))

# Debugging symbols of generated C cost a third of the build; its warnings say nothing of ours.
compile_args = ["-O3", "-g0", "-w", "-fno-semantic-interposition"]
link_args: list[str] = []
directives = {"language_level": 3, "embedsignature": True, "binding": True}
if SANITIZE:
    flags = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    compile_args = ["-O1", "-g", "-fno-sanitize-recover=undefined", *flags]
    link_args = flags

# The event engine in one piece: a lock event takes 15 % less time than with calls of its parts.
# Two counters at once in a vector take it more instructions than one after the other; what is
# computed ahead for rare paths takes registers from the usual one.
ENGINE = Path("pcpmodel/simulation/engine.pyx")
IN_ONE_PIECE = ["-fno-tree-slp-vectorize", "-fno-tree-pre"] + [
    f"--param={limit}"
    for limit in (
        "max-inline-insns-single=3000",
        "large-function-growth=5000",
        "large-stack-frame-growth=5000",
        "inline-unit-growth=1000",
    )
]

extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        depends=["setup.py", *map(str, Path("pcpmodel/kernel").glob("*.h"))],
        include_dirs=["pcpmodel/kernel"],
        extra_compile_args=[*compile_args, *(IN_ONE_PIECE if path == ENGINE else [])],
        extra_link_args=link_args,
    )
    for path in sorted(Path("pcpmodel").rglob("*.pyx"))
    if CORE
]


class BuildWithData(build_py):
    """Puts the tables of ``data/``, notebooks and examples into the wheel, below ``pcpmodel``.

    An editable install reads them where they lie.
    """

    def _tables(self) -> Iterator[tuple[Path, Path]]:
        if not self.editable_mode:
            tables = (Path("data", part) for part in ("hardware", "published", "workload"))
            found = [path for part in (*tables, Path("examples")) for path in part.rglob("*")]
            for path in sorted([*found, *Path("notebooks").glob("*.ipynb")]):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path, Path(self.build_lib, "pcpmodel", path)

    def run(self) -> None:
        super().run()
        for source, target in self._tables():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(str(t) for _, t in self._tables())]


setup(
    cmdclass={"build_py": BuildWithData},
    options={"build_ext": {"parallel": JOBS}},
    ext_modules=cythonize(
        extensions,
        compiler_directives=directives,
        # Generated C stays out of the source tree, and so out of sdist and wheel.
        build_dir="build/cython-sanitize" if SANITIZE else "build/cython",
        annotate=os.environ.get("PCPMODEL_ANNOTATE") == "1",
        force=SANITIZE,
        nthreads=JOBS,
        quiet=True,
    ),
)
