"""Plans a host: facts and settings become the wanted state, ordered actions, a lock and role variables."""
