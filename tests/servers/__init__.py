"""Real model servers, each in an environment of its own, tried through dragoman: `make servers`."""
