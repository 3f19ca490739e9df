-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

-- Declarations of trust: `arguments` is JSON, what the arguments of a tool are for by name (tools.base.rights.Column).
ALTER TABLE mcp_trust ADD COLUMN arguments TEXT;
