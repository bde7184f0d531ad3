"""Passes over segments that lists of numbers name, and over lists of rows that increase."""
