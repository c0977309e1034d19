"""A run: its directory, layout, events, status, export, and how it resumes and ends."""
