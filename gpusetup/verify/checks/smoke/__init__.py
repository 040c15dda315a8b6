"""Level smoke: the installed stack works on every GPU, in seconds."""
