"""How the documentation is built: offline, with examples run and warnings fatal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.inspect import TypeAliasForwardRef

import lockquack

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "lockquack"
author = "The lockquack developers"
version = release = lockquack.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "corpus",
    "explained",
    "mathml",
    "offline",
    "outside",
    "recorded",
]
# Links into the documentation of others take an inventory of each, which is fetched. The site is
# built without a network everywhere but on Read the Docs; elsewhere by LINKS=1 make docs.
if os.environ.get("READTHEDOCS") or os.environ.get("LINKS"):
    extensions.append("public_names")
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "pandas": ("https://pandas.pydata.org/docs", None),
    "xarray": ("https://docs.xarray.dev/en/stable", None),
    "matplotlib": ("https://matplotlib.org/stable", None),
    "arviz": ("https://python.arviz.org/en/stable", None),
    "arviz_base": ("https://arviz-base.readthedocs.io/en/stable", None),
    "arviz_stats": ("https://arviz-stats.readthedocs.io/en/stable", None),
    "pymc": ("https://www.pymc.io/projects/docs/en/stable", None),
    "numpyro": ("https://num.pyro.ai/en/stable", None),
}
exclude_patterns = ["_build", "_extensions", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]

# Pages are Markdown that also reads well without Sphinx. Only cells marked as such are run.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
os.environ["MATPLOTLIBRC"] = str(Path(__file__).parent / "matplotlibrc")
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_code_prompt_show = "Show code"
nb_code_prompt_hide = "Hide code"
suppress_warnings = ["myst.strikethrough"]

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "Array": "Array"}
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_ivar = True

# What is copied from a block is what one would type.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "lockquack"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-dark"
html_theme_options = {"navigation_with_keys": True}

# In a union, Sphinx prints an alias as the object that stands for it.
TypeAliasForwardRef.__repr__ = lambda self: self.name


def hide_constructor(_app: Sphinx, _what: str, name: str, *_: object) -> tuple[str, None] | None:
    """Show no signature of classes that users get but do not make."""
    made_for_them = {f"lockquack.{kind}" for kind in ("Combination", "Distribution", "Model")}
    return ("", None) if name in made_for_them else None


def setup(app: Sphinx) -> None:
    """Connect what is defined here."""
    app.connect("autodoc-process-signature", hide_constructor)
