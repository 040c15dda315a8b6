"""Real distributions: any cloud image in a virtual machine, or a host by SSH, taken through the whole life of a stack."""
