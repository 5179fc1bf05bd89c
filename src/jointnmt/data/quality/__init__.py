"""What is wrong with parallel text as people have it: all problems at once, and a clean copy."""
