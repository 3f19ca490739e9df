"""The operator's rules on arguments: they deny or ask, for every principal, in every mode, whatever is granted."""
