"""The SQL epoch fence on real databases."""
