-- Memory: rows that are recalled in later conversations.

-- Schedules and triggers: what begins runs without a request.

-- Webhooks, push subscriptions, and what is still to be delivered to them.

-- Sensitivity labels.

-- Profiles and servers of models.
