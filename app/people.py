"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    GUEST = "guest"
    USER = "user"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """Someone with rights; `name` is unique and owns sessions and runs."""

    name: str
    role: Role


LOCAL_USER = Principal("local", Role.ADMIN)
