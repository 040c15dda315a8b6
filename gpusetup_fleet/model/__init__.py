"""The documents that these commands print, write and exchange."""
