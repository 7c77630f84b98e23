"""Speed, memory and growth of respool beside what a user would pick instead: `make bench`."""
