"""Quality checks of users' parallel text: all problems at once, and a clean copy."""
