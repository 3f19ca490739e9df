"""Access to the web: public hosts and addresses, URLs, host patterns, pages as text."""
