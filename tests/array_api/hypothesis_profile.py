"""A plugin for the suite's own pytest: failures are reported as they are found. Shrinking takes most of the time of a run."""

import pytest
from hypothesis import Phase, settings


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    settings.register_profile("no shrinking", settings(), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("no shrinking")
