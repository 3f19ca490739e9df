"""Branches of conversations: made by a fork, and the turns at which they part."""
