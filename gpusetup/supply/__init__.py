"""Supply for sites without a network: what hosts need, fetched once, in repositories of the site's own."""
