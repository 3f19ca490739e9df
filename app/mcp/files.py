"""Binary content of MCP servers, kept with the session for its owner.

Not in the workspace: there a later conversation would read it as if it were trusted, and so would
commands. What is too long is kept as any result is, see `app.runs.tool_results`.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from app.storage.changes import ChangeWriter, StoreFailed
from app.storage.files.store import FileRow, SessionFile
from tools.tool import Context


class KeptFiles(Struct, frozen=True):
    """It is a `keep` of tools.mcp.model.Hooks."""

    store: ChangeWriter
    most_bytes: int

    async def __call__(self, context: Context, content: bytes) -> str:
        if not context.session:
            return "not kept, because it belongs to no conversation"
        if len(content) > self.most_bytes:
            return f"not kept, because it is larger than {self.most_bytes:,} bytes"
        digest = sha256(content).hexdigest()
        try:
            await self.store.write([FileRow(digest, content), SessionFile(context.session, digest)])
        except StoreFailed as failure:
            return f"not kept: {failure}"
        return f"kept for the person at /sessions/{context.session}/files/{digest}"
