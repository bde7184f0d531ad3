"""The largest numbers of segments: by a bound that is found by halves, by heaps, by their leading digits."""
