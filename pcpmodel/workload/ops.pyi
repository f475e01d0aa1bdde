__all__ = ["LIMITS", "OPS"]

OPS: dict[str, int]
LIMITS: dict[str, int]
