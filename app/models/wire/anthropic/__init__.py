"""Anthropic's Messages API: history encoding, block decoding, signed reasoning, prompt caching."""
