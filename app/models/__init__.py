"""Model servers: endpoints with keys, queues and failover; wire formats; capabilities; tokens; the embedded model."""
