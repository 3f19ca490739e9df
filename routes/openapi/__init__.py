"""The OpenAPI document of the HTTP API, made of the routes, the models of their bodies and the structs of events."""
