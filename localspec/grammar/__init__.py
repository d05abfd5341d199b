"""Grammars as text: GBNF checked before native code sees it, and made from schemas and choices."""
