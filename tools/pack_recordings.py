"""Copy recordings with their traces recompressed: ``pack_recordings.py SOURCE DESTINATION NAME...``

zstd at level 19 with a 32 MiB window halves what gzip makes of a trace; every
other file is copied as it is.
"""

# SPDX-License-Identifier: GPL-2.0-only

import shutil
import sys
from pathlib import Path

import zstandard

from pcpmodel.trace.packed import open_text


def pack(source: Path, destination: Path) -> int:
    """Copy one recording; returns its new size [bytes]."""
    destination.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if not path.name.startswith("trace.txt"):
            shutil.copyfile(path, destination / path.name)
            continue
        text = b"".join(open_text(path))
        parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=25)
        compressor = zstandard.ZstdCompressor(compression_params=parameters)
        (destination / "trace.txt.zst").write_bytes(compressor.compress(text))
    return sum(p.stat().st_size for p in destination.iterdir())


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    total = 0
    for name in sys.argv[3:]:
        total += pack(Path(sys.argv[1], name), Path(sys.argv[2], name))
        print(f"{name}: {total / 1e6:.1f} MB so far")
