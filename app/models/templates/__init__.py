"""Chat templates of models: rendering them safely, and reading how their calls are written."""
