"""The site: `pip install -e ".[docs]" && sphinx-build -W -b html docs docs/_build`.

`-t lean -b dummy` checks every page and link in some seconds: no cell is executed (tests run them), the gallery has no pictures, and the reference
has a page for each module but none for each name. CI runs this one.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # of notebooks

import sparsejax  # noqa: E402

project = "sparsejax"
author = "The sparsejax authors"
release = version = sparsejax.__version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "api_pages",
    "docstrings",
    "flowcharts",
    "gallery_pages",
]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]
default_role = "code"
highlight_language = "none"  # of blocks in docstrings that are no examples
autosummary_generate = False  # `api_pages` writes them
autodoc_typehints_format = "short"
autodoc_member_order = "groupwise"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
lean = tags.has("lean")  # noqa: F821  (Sphinx puts `tags` here)
suppress_warnings = ["myst-nb.lexer"] if lean else []  # cells that do not run have no language
nb_execution_mode = "off" if lean else "cache"
nb_execution_cache_path = str(ROOT / "docs" / "_build" / ".notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "sparsejax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sparsejax"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "gallery/index": []}
copyright = "the sparsejax authors, BSD-3-Clause"
