"""The exact search for one stack, with a reason for every choice and every refusal."""
