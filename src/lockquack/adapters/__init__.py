"""Models from where people fit them, one file per source."""
