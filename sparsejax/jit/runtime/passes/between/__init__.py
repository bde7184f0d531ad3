"""Conversions between kinds of formats, each in one or two kernel calls: into blocks and diagonals, into dense memory, and into coordinates."""
