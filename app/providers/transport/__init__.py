"""The leaner half of httpx2: its client and errors stay, what carries bytes below them is ours."""
