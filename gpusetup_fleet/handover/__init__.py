"""What another engine needs to know of hosts that gpusetup has set up, so that nothing is done twice."""
