"""All models of the corpus, of every library, wherever in this package they are written."""

from __future__ import annotations

import importlib
import pkgutil

import tests.ppl.corpus as package
from tests.ppl.corpus.case import Case, Corpus


def corpora() -> dict[str, list[Case]]:
    """Return the cases of each library, those of one kind together.

    A module belongs to the corpus if it has a ``CORPUS``; nothing else is to be registered.
    """
    found: dict[str, list[Case]] = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        corpus = getattr(importlib.import_module(module.name), "CORPUS", None)
        if isinstance(corpus, Corpus):
            known = found.setdefault(corpus.library, [])
            known.extend(case for case in corpus if case not in known)
    return {library: _by_kind(found[library]) for library in sorted(found, key=str.lower)}


def _by_kind(cases: list[Case]) -> list[Case]:
    kinds = dict.fromkeys(case.kind for case in cases)
    return [case for kind in kinds for case in cases if case.kind == kind]
