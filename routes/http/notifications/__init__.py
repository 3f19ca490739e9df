"""Routes of notifications: webhooks and Web Push."""
