"""The models that there are: endpoints, each with its models, and the route that a run's requests take to one."""
