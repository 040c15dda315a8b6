"""Bundles and mirrors for sites without a network: packages and wheels, fetched once, in repositories of the site."""
