"""Output for people and programs: tables, progress, files."""
