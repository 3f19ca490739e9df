"""`dragoman parse` and `dragoman dialects`: what a text means, and which dialects are understood."""
