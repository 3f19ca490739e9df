"""Standing permissions: calls that are allowed without a question, because what they can reach is bounded."""
