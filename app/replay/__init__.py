"""Replay: recorded runs through the current parser, gate, trimming, discipline and lanes, without any effect."""
