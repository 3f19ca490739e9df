"""Budgets of principals: reserved before a model request or a tool, settled after it; usage reports."""
