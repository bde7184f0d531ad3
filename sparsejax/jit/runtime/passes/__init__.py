"""Conversions and parts of arrays by machine code: what `formats.passes` asks for, as loops over entries or segments."""
