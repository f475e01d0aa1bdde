from dataclasses import dataclass

@dataclass(frozen=True)
class Assumption:
    name: str
    when: str
    does: str
    proof: str

ASSUMPTIONS: dict[int, Assumption]
UNSEEN: str
COMPACTED: str
READ_MEANWHILE: str
