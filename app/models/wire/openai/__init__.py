"""OpenAI's chat completions: history encoding, chunk decoding, reasoning replay."""
