"""What other people relay a model with, as servers that do just that; run by a Python that has them installed."""
