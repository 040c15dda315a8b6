"""Under two minutes: is the machine as fast as its parts allow?"""
