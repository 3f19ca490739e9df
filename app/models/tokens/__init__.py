"""Token counting: exact counts from servers and tokenizer files, estimates, picture costs, text shortening."""
