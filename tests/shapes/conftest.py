"""What is counted while shapes change."""

import pytest

from sparsejax.formats import passes
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.runtime.passes import conversions
from sparsejax.jit.runtime.passes.between import block_conversions, dense_conversions


@pytest.fixture
def counts(monkeypatch):
    """How often something was scheduled, and how many texts were compiled. Passes over few entries, which are compiled when they have run often,
    whatever the shapes, are compiled at once, and so are conversions: else what ran before this test would decide when."""
    monkeypatch.setattr(passes, "_few", passes._many)
    for module in (conversions, dense_conversions, block_conversions):
        monkeypatch.setattr(module, "COMPILED", 0)
    seen, texts, compiled = {"schedules": 0, "compiles": 0}, set(), compiler.compile_text

    def counted(name, function):
        def run(*args, **kwargs):
            seen[name] += 1
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr(pipeline, "schedule_of", counted("schedules", pipeline.schedule_of))

    def compile_text(text, *args, **kwargs):
        texts.add(text)
        seen["compiles"] = len(texts)
        return compiled(text, *args, **kwargs)

    monkeypatch.setattr(compiler, "compile_text", compile_text)
    return seen
