"""The list of conversations: its folders, and links that share a conversation."""
