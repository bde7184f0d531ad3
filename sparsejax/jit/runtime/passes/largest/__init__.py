"""The largest numbers of segments: by heaps, by comparing all with all, by their leading digits."""
