"""From planned loops to text, through a builder."""
