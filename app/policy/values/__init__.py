"""The decision by value: the parts of arguments in what a call does, and which values are the person's own."""
