"""The context of a model request: prompt, history counted, trimmed to the window and summarised, history search."""
