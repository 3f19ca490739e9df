"""Wire formats: how requests are encoded and streamed answers are decoded, per API family."""
