import pytest


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, for tests that look at pages; they are skipped where it is not installed."""
    from report.browser import Browser

    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
