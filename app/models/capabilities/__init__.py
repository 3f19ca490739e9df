"""Capabilities of models: probing servers, name hints, server profiles, token counting endpoints, discovery."""
