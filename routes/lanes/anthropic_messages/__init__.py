"""The lane of Anthropic's Messages: `POST /v1/messages`, and the count of a request's tokens."""
