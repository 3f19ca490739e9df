"""The lane of OpenAI's Chat Completions."""
