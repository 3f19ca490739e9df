"""Approval of one call: bound to the exact tool, arguments and the state that they change; valid once."""

from __future__ import annotations

import hashlib
import json

from msgspec import Struct

from parsing import Arguments


def canonical(value: object) -> str:
    """The same JSON for the same value, in whatever order its fields were written."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def fingerprint(principal: str, name: str, arguments: Arguments, binding: str = "") -> str:
    """SHA-256 of the principal, the tool, its exact arguments, and the state that the approval is bound to."""
    bound = [principal, name, canonical(arguments), *([binding] if binding else [])]
    return hashlib.sha256("\n".join(bound).encode("utf-8", "surrogatepass")).hexdigest()


class Permit(Struct):
    """`fingerprint` of the call that was approved; `take` works once."""

    fingerprint: str
    used: bool = False

    def take(self, fingerprint: str) -> bool:
        good, self.used = not self.used and fingerprint == self.fingerprint, True
        return good
