"""The lane of the AI SDK's `useChat`: `POST /ui-message-stream`."""
