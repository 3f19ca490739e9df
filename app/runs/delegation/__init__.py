"""Runs that runs begin: helpers and their shares of limits, questions to other models, other sessions."""
