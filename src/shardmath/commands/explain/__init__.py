"""Show the account of one configuration: bytes and seconds by component, for every pipeline rank."""
