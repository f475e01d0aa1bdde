__all__ = ["LIMITS", "OPS", "SEQUENCES"]

OPS: dict[str, int]
LIMITS: dict[str, int]
SEQUENCES: dict[str, int]
