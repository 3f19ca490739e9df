"""Chat templates: reading them from where a model has them, rendering them safely, deriving dialects from them."""
