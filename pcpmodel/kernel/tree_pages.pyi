from typing import Any, Self, final

from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.tree import Tree

FIELDS: tuple[str, ...]
MAX_BATCH: int
SERVER_ZONE_BYTES: int
MIGRATETYPES: dict[str, int]
MAX_PAGES: int
OPS: tuple[str, ...]

@final
class TreePages:
    def __new__(
        cls,
        tree: Tree,
        *,
        batch: int = 63,
        high: int | None = None,
        high_min: int | None = None,
        high_max: int | None = None,
        flags: int = 0,
    ) -> Self: ...
    @property
    def tree(self) -> Tree: ...
    below_high: bool
    reclaim_active: bool
    def alloc(self, order: int = 0, migratetype: int = 1) -> int: ...
    def free(self, order: int = 0, migratetype: int = 1) -> list[int]: ...
    def decay(self) -> list[int]: ...
    def drain_zone_pages(self) -> int: ...
    def drain_pages_zone(self) -> list[int]: ...
    def state(self) -> dict[str, Any]: ...

ARGUMENTS: tuple[tuple[str, str], ...]

def passed_otherwise(tree: Tree, release: str) -> int: ...
def loaded(path: str) -> int: ...
def steps_of_tree(tree: Tree) -> int: ...
def lists_of_tree(tree: Tree) -> int: ...
def engine_lists(tree: Tree, release: str | Release) -> int: ...
def sizing(
    tree: Tree,
    managed: int,
    low_wmark: int,
    cpus: int,
    all_cpus: int,
    fraction: int = 0,
    cpu_online: int = 0,
) -> tuple[int | None, int | None]: ...
def compare(
    tree: Tree,
    release: str | Release,
    n: int = 10_000_000,
    seed: int = 0,
    most: int = 1,
    length: int = 1 << 17,
    rows: bool = False,
    lists: bool = True,
) -> tuple[int, list[dict[str, Any]]]: ...
def lists_correspond(tree: Tree, release: str | Release) -> bool: ...
def try_once(
    tree: Tree, release: str | Release, example: dict[str, Any]
) -> dict[str, Any] | None: ...
