"""Replay: rows on memory maps, drawn uniformly or by priority. No torch."""
