"""The SQL library; every ``.sql`` file beside this one is a query."""
