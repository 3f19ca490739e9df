"""OpenTelemetry: traces and metrics of runs, in the words of the GenAI conventions."""
