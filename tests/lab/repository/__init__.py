"""Local package repositories with NVIDIA's layout and names, holding small stand-in packages, signed with a lab key."""
