"""One module per data source; each yields ``Row`` objects."""
