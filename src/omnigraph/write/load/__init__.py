"""Loading: files, streams and frames into deltas, in bounded memory."""
