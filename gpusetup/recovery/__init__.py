"""What an error needs (a reset, a reboot, a person), by the driver's words and NVIDIA's catalogue of Xids."""
