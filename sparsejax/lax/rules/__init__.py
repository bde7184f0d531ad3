"""How operations are transformed: derivatives, batches, parts of results, of the operations in `lax/` of the same name."""
