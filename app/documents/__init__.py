"""Documents beside a conversation: written by the model, edited by the person, versioned."""
