"""The tool floor: the Tool type, the catalogue of built-in tools, and the one dispatcher."""
