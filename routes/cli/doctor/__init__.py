"""`dragoman doctor`: checks of this installation, a row each, and what to do about what they find."""
