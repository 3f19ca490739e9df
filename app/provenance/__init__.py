"""Where a call in text comes from: quotations of what the model has read are not calls."""
