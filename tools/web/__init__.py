"""Public hosts: addresses, URLs, and pages as text."""
