"""The history of one run: conversation, the reply being read, inbox, totals, titles."""
