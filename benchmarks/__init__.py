"""Speed, memory and growth of respool compared with its alternatives: `make bench`."""
