"""Programs on disk: what an earlier process has typed, fused, scheduled and lowered, a new one only reads (`programs`)."""
