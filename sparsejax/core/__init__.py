"""IR 1: arrays, abstract values, primitives, jaxprs and tracing."""
