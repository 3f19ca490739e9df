"""What of a conversation a model is sent: counted, trimmed to its window, summarised before that is needed."""
