"""Types that every room uses: events, messages, attachments, the Provider protocol, requests, rules, clock."""
