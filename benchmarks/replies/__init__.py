"""What a reply is worth: how its end is judged, and which hints of the prompt help a small model."""
