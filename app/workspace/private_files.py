"""Files of a workspace that are not sent over HTTP: names under which secrets usually lie, and the places that the
owner's own programs run or obey, but for sources of the project.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from tools.sandbox.owner_run_paths import owner_run_rule

# In lower case; a folder's name counts for everything in it.
SECRETS = (
    *(".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd"),
    *(".git-credentials", ".pypirc", ".terraformrc", "*.tfstate", "credentials", "credentials.json", "secrets.*"),
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud"),
)
EXAMPLES = ("*.example", "*.sample", "*.template", "*.pub")  # of such files, with nothing in them
HOLDS_SECRETS = "files of this name usually hold secrets"


def private_reason(parts: Iterable[str]) -> str | None:
    """Return why a file at this path is not sent, as a clause; None if it may be. Parts are below the workspace."""
    parts = tuple(parts)
    if (rule := owner_run_rule(parts)) and not rule.is_source:
        return rule.why
    names = [part.casefold().rstrip(". ") for part in parts]
    return HOLDS_SECRETS if any(map(_is_secret, names)) else None


def _is_secret(name: str) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in EXAMPLES):
        return False
    return any(fnmatchcase(name, pattern) for pattern in SECRETS)
