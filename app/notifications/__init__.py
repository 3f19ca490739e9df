"""Notifications: events of runs, jobs and budgets, sent to webhooks and to browsers that subscribed to Web Push."""
