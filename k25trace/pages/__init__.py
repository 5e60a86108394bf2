"""Web pages that need nothing but a browser: one file each, with all they show and run inside."""
