-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

-- Decisions: `facts` is JSON, what a decision on a call rested on, so that other rules can be tried on it.
ALTER TABLE audit ADD COLUMN facts TEXT NOT NULL DEFAULT '';
CREATE INDEX audit_by_run ON audit (run);
