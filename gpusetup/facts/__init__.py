"""What a host is: collected once, grouped into classes of identical hosts."""
