from collections.abc import Iterable
from os import PathLike

import numpy as np

from pcpmodel.kernel.releases import Release
from pcpmodel.trace.assumptions import ASSUMPTIONS as ASSUMPTIONS
from pcpmodel.trace.exactness import Exactness as Exactness
from pcpmodel.trace.page_lists import Difference as Difference
from pcpmodel.trace.page_lists import Explained as Explained
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.work import WORK as WORK
from pcpmodel.trace.work import WORK_OPS as WORK_OPS

DECISION: np.dtype[np.void]

def replay(
    recording: Recording | str | PathLike[str],
    *,
    release: str | Release | None = None,
    policy: object = None,
    progress: bool = False,
) -> Exactness: ...
def replay_work(
    recording: Recording | str | PathLike[str],
    release: str | Release | None = None,
    policy: object = None,
    ops: Iterable[str] = ...,
    whole: bool = True,
) -> tuple[Exactness, np.ndarray, list[tuple[int, int]]]: ...
