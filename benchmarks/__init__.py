"""Speed and memory of training and decoding, measured side by side: `python -m benchmarks --help`."""
