"""What a reply is worth: how its end is judged, which hints of the prompt help a small model, which tools it picks."""
