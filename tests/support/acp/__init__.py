"""An editor that speaks the Agent Client Protocol, and the protocol's schema."""
