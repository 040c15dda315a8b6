"""Minutes as asked: does it stay so under load?"""
