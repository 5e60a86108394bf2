"""The local viewer: a page that asks this machine, and nothing else, for the detail it shows (extra ``view``)."""
